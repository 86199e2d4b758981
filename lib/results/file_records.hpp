// The records of a results file, for those who go through them more than once.
#pragma once

#include <functional>
#include <string>

#include "json/json.hpp"

namespace kvbench {

// One record of the file is in memory at a time, whatever their number.
class FileRecords {
 public:
  enum class Kind { kCells, kLayers };

  // Reads the file once. Throws InputError as read_results() does, and where a record is not one or
  // two are of the same cell, or layer.
  // `with_config`: rest() has the sweep.
  FileRecords(std::string path, Kind kind, bool with_config = false);

  // The file's members without its cells, layers, summary and groups.
  const Json& rest() const { return rest_; }

  // Calls `each` with every record, in order, read anew. Throws InputError where the file
  // is another by now.
  void visit(const std::function<void(const Json& record)>& each) const;

 private:
  std::string path_;
  Kind kind_;
  Json rest_;
};

}  // namespace kvbench
