// KV heads that do not fit what an entry names (a cache file), one message for each reason.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/stream.hpp"
#include "system/error.hpp"

namespace kvbench {

class HeadMisfits {
 public:
  // `what`, the value at `pointer`, does not go with the head, as `clause` says with its remedy.
  void add(std::string pointer, std::string what, const StreamId& head, const std::string& clause) {
    const auto [misfit, is_new] = heads_.try_emplace(
        {std::move(pointer), std::move(what), clause},
        fmt::format("sequence {}, layer {}, KV head {}", head.sequence, head.layer, head.kv_head),
        Index{0});
    ++misfit->second.second;
  }

  void report(ErrorList& errors) const {
    for (const auto& [misfit, heads] : heads_) {
      const auto& [pointer, what, clause] = misfit;
      const auto& [first, count] = heads;
      const std::string others =
          count > 1 ? fmt::format(" (and {} more heads)", count - 1) : std::string();
      errors.add(pointer, fmt::format("{}: {}{}: {}", what, first, others, clause));
    }
  }

 private:
  // The first head and the number of heads, by pointer, value and clause.
  std::map<std::tuple<std::string, std::string, std::string>, std::pair<std::string, Index>> heads_;
};

}  // namespace kvbench
