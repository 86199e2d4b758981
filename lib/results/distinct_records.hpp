// Records of a results file, each of another cell or layer.
#pragma once

#include <cstddef>
#include <string>

#include "json/json.hpp"
#include "system/key_index.hpp"

namespace kvbench {

class DistinctRecords {
 public:
  // `path`: of the file, for messages. `member`: "cells" or "layers".
  DistinctRecords(std::string path, std::string member);

  // The next record of the member. Throws InputError if it is not one, or of the same cell, or
  // layer, as an earlier one.
  void add(const Json& record);

 private:
  std::string path_;
  std::string member_;
  KeyIndex keys_;
};

}  // namespace kvbench
