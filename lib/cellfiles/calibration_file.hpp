// Calibration files: numbers of a method by layer and KV head, in HDF5 (format: data/FORMAT.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/calibration.hpp"
#include "dump/dump.hpp"

namespace kvbench {

// Opens a calibration file and reads all of it once. Its `read` may be called from several threads,
// one of which waits for the other. Throws one InputError with every error, each "FILE: /place:
// what; remedy".
std::shared_ptr<const Calibration> open_calibration(const std::string& path,
                                                    const DumpOptions& options = {});

struct CalibratedHead {
  CalibratedNumbers numbers;
  std::vector<KeyMarks> marks;  // by text
};
using CalibrateHead = std::function<CalibratedHead(const CalibratedLayer&, int kv_head)>;

// Writes a calibration to its path, with the arrays that `head` gives of each KV head of its
// layers; of the same content the same bytes. The file appears whole or not at all. Throws IoError
// if the place cannot be written, and what `head` throws.
void write_calibration(const Calibration& calibration, const std::string& producer,
                       const CalibrateHead& head);

}  // namespace kvbench
