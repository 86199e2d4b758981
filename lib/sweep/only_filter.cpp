#include "sweep/only_filter.hpp"

#include <fnmatch.h>

#include <algorithm>

namespace kvbench {
namespace {

constexpr std::ptrdiff_t kSlashes = 4;  // slashes of algorithm/label/sequence/layer/head

bool matches(const std::string& glob, const std::string& text) {
  return fnmatch(glob.c_str(), text.c_str(), FNM_PATHNAME) == 0;
}

// `glob` with "*" for the parts of a path that it leaves out at its end.
std::string whole_path(std::string glob) {
  if (!glob.empty() && glob.back() == '/') glob.pop_back();
  for (auto left = kSlashes - std::count(glob.begin(), glob.end(), '/'); left > 0; --left) {
    glob += "/*";
  }
  return glob;
}

}  // namespace

bool Only::keeps(const std::string& id, const std::string& path) {
  bool kept = globs_.empty();
  for (std::size_t i = 0; i < globs_.size(); ++i) {
    if (matches(globs_[i], id) || matches(globs_[i], path)) {
      used_[i] = true;
      kept = true;
    } else if (!used_[i] && meant_[i].empty()) {
      for (const std::string& longer :
           {globs_[i] + "*", whole_path(globs_[i]), whole_path("*/" + globs_[i])}) {
        if (!matches(longer, id) && !matches(longer, path)) continue;
        meant_[i] = longer;
        break;
      }
    }
  }
  return kept;
}

void Only::report_unused(ErrorList& errors) const {
  for (std::size_t i = 0; i < globs_.size(); ++i) {
    if (used_[i]) continue;
    errors.add("--only " + globs_[i],
               meant_[i].empty() ? "matches no cell of the sweep; give a cell's id or a glob on "
                                   "algorithm/label/sequence/layer/head, such as window/*/*/*/*"
                                 : "matches no cell of the sweep; did you mean '" + meant_[i] +
                                       "'? A glob names a whole id, or all five parts of "
                                       "algorithm/label/sequence/layer/head");
  }
}

}  // namespace kvbench
