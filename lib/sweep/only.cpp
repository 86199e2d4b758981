#include "sweep/only.hpp"

#include <fnmatch.h>

namespace kvbench {

bool Only::keeps(const std::string& id, const std::string& path) {
  bool kept = globs_.empty();
  for (std::size_t i = 0; i < globs_.size(); ++i) {
    const char* glob = globs_[i].c_str();
    if (fnmatch(glob, id.c_str(), FNM_PATHNAME) == 0 ||
        fnmatch(glob, path.c_str(), FNM_PATHNAME) == 0) {
      used_[i] = true;
      kept = true;
    }
  }
  return kept;
}

void Only::report_unused(Faults& faults) const {
  for (std::size_t i = 0; i < globs_.size(); ++i) {
    if (used_[i]) continue;
    faults.add("--only " + globs_[i],
               "matches no cell of the sweep; give a cell's id or a glob on "
               "algorithm/label/sequence/layer/head, such as window/*/*/*/*");
  }
}

}  // namespace kvbench
