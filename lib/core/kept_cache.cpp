#include "core/kept_cache.hpp"

#include <algorithm>
#include <tuple>

namespace kvbench {
namespace {

std::string differs(const char* what, Index made_for, Index has) {
  return std::string("was made for ") + what + " = " + std::to_string(made_for) + ", but " + what +
         " is " + std::to_string(has) + " here";
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
  const std::string again = "; make the file for this dump";
  if (head.prompt != prompt) {
    return differs("P", head.prompt, prompt) + "; set replay.prompt_tokens to " +
           std::to_string(head.prompt) + ", or make the file again";
  }
  if (head.tokens && *head.tokens != shape.tokens) {
    return differs("n", *head.tokens, shape.tokens) + "; set select.tokens to " +
           std::to_string(*head.tokens) + ", or make the file again";
  }
  if (head.least_tokens > shape.tokens) {
    return "has rows up to token " + std::to_string(head.least_tokens - 1) + ", and there are " +
           std::to_string(shape.tokens) +
           " tokens; choose more in select.tokens, or make the file again";
  }
  if (head.d > 0 && head.d != shape.d) return differs("d", head.d, shape.d) + again;
  if (head.dv > 0 && head.dv != shape.dv) return differs("dv", head.dv, shape.dv) + again;
  if (head.query_heads > shape.heads_per_kv) {
    return "has rows of query head " + std::to_string(head.query_heads - 1) +
           " of the group, which has " + std::to_string(shape.heads_per_kv) + again;
  }
  return std::nullopt;
}

}  // namespace kvbench
