// Cells of a results file drawn at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "results/file_records.hpp"

namespace kvbench {

struct Sample {
  std::vector<Json> cells;   // in the order of the file
  std::size_t ok = 0;        // cells of the file that are ok
  std::size_t unknown = 0;   // cells among them of methods that the program does not know
  std::size_t eligible = 0;  // the others that were computed on the device, of the dumps
};

// At most `count` cells that are ok, of `device` and of dumps with these fingerprints, and of no
// method in `unknown`; each such cell with the same probability, whatever their number (Vitter's
// algorithm R).
Sample draw_sample(const FileRecords& records, std::size_t count, std::uint32_t seed,
                   const std::string& device, const std::set<std::string>& fingerprints,
                   const std::set<std::string>& unknown);

}  // namespace kvbench
