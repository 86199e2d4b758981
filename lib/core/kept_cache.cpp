#include "core/kept_cache.hpp"

#include <algorithm>
#include <tuple>

namespace kvbench {
namespace {

std::string differs(const char* what, Index made_for, Index has) {
  return std::string("was made for ") + what + " = " + std::to_string(made_for) +
         ", and here it is " + std::to_string(has);
}

}  // namespace

const KeptHead* KeptCache::find(const StreamId& id) const {
  const auto wanted = std::tie(id.sequence, id.layer, id.kv_head);
  const auto place = std::lower_bound(
      heads.begin(), heads.end(), wanted, [](const KeptHead& head, const auto& of) {
        return std::tie(head.sequence, head.layer, head.kv_head) < of;
      });
  const bool found =
      place != heads.end() && std::tie(place->sequence, place->layer, place->kv_head) == wanted;
  return found ? &*place : nullptr;
}

std::optional<std::string> misfit(const KeptHead& head, const StreamShape& shape, Index prompt) {
  if (head.prompt != prompt) return differs("P", head.prompt, prompt);
  if (head.tokens && *head.tokens != shape.tokens) return differs("n", *head.tokens, shape.tokens);
  if (head.least_tokens > shape.tokens) {
    return "has rows up to token " + std::to_string(head.least_tokens - 1) + ", and there are " +
           std::to_string(shape.tokens) + " tokens";
  }
  if (head.d > 0 && head.d != shape.d) return differs("d", head.d, shape.d);
  if (head.dv > 0 && head.dv != shape.dv) return differs("dv", head.dv, shape.dv);
  if (head.query_heads > shape.heads_per_kv) {
    return "has rows of query head " + std::to_string(head.query_heads - 1) +
           " of the group, which has " + std::to_string(shape.heads_per_kv);
  }
  return std::nullopt;
}

}  // namespace kvbench
