// A word of warning if a results file does not hold all of its sweep.
#pragma once

#include <string>

#include "json/json.hpp"
#include "output/log.hpp"

namespace kvbench {

// `results`: the members of the file at `path`, with or without its cells.
inline void warn_if_incomplete(const Json& results, const std::string& path) {
  if (results.value("status", Json("complete")) == "complete") return;
  log_text(
      "kvbench: note: {} is incomplete: cells of its sweep are missing, means may cover "
      "fewer heads\n",
      path);
}

}  // namespace kvbench
