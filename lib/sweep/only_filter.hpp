// `--only`: globs that narrow a plan.
#pragma once

#include <string>
#include <vector>

#include "json/pointer.hpp"

namespace kvbench {

// Matches cell ids and paths and remembers which globs ever did. No globs keep everything.
class Only {
 public:
  explicit Only(const std::vector<std::string>& globs)
      : globs_(globs), used_(globs.size(), false), meant_(globs.size()) {}

  bool keeps_all() const { return globs_.empty(); }
  bool keeps(const std::string& id, const std::string& path);

  // A glob that matched nothing is an error, most likely a typo. If a longer one would have
  // matched, the beginning of an id or of a path was given, and the message suggests that one.
  void report_unused(ErrorList& errors) const;

 private:
  const std::vector<std::string>& globs_;
  std::vector<bool> used_;
  std::vector<std::string> meant_;  // per glob that matched nothing so far, a longer one; or empty
};

}  // namespace kvbench
