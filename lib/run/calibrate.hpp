// Makes a calibration file: numbers of a method or a codec from whole texts of dumps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "core/calibration.hpp"

namespace kvbench {

struct CalibrateRequest {
  std::string method;                  // id of a method or a codec
  std::string params = "{}";           // JSON object: those of its calibration_params
  std::vector<std::string> dumps;      // paths
  std::vector<std::string> sequences;  // empty: all
  std::vector<int> layers;             // empty: all of the first text
  Index tokens = 0;                    // at most the first of each text; 0: all
  std::string out;
};

// Writes the file, and opens it. Throws InputError for dumps of several models, and for a text that
// the method cannot calibrate on.
std::shared_ptr<const Calibration> calibrate(
    const CalibrateRequest& request,
    const std::vector<AlgorithmDescription>& algorithms = all_algorithms());

}  // namespace kvbench
