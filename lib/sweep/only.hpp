// `--only`: globs that narrow a plan.
#pragma once

#include <string>
#include <vector>

#include "sweep/faults.hpp"

namespace kvbench {

// Matches cell ids and paths and remembers which globs ever did. No globs keep everything.
class Only {
 public:
  explicit Only(const std::vector<std::string>& globs)
      : globs_(globs), used_(globs.size(), false) {}

  bool keeps(const std::string& id, const std::string& path);

  // A glob that matched nothing is a fault: most likely a slip.
  void report_unused(Faults& faults) const;

 private:
  const std::vector<std::string>& globs_;
  std::vector<bool> used_;
};

}  // namespace kvbench
