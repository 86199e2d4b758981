// Reports of a merge as lines on standard error.
#pragma once

#include <string>
#include <vector>

#include "run/merge_folders.hpp"

namespace kvbench {

class MergeLog : public MergeObserver {
 public:
  void notice(const std::string& text, const std::vector<std::string>& items) override;
  void warning(const std::string& text) override;
};

// Counts of cells, and what is missing, of the results file `out`.
void log_merged(const std::string& out, const MergeOutcome& outcome);

}  // namespace kvbench
