// Journal of what cells kept, until cache files are made of it.
#pragma once

#include <string>

#include "cellfiles/cell_log.hpp"
#include "core/kept_cache.hpp"

namespace kvbench {

class KeptJournal {
 public:
  // Throws IoError.
  KeptJournal(const std::string& path, AppendLog::Access access);

  // Both functions are those of CellLog.
  void append(const std::string& cell_id, const KeptRows& kept);
  KeptRows read(const std::string& cell_id) const;
  bool has(const std::string& cell_id) const { return log_.has(cell_id); }

 private:
  CellLog log_;
};

}  // namespace kvbench
