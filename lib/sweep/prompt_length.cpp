#include "sweep/prompt_length.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>

namespace kvbench {

Index default_prompt(Index tokens, Index query_rows) {
  const Index wanted = std::min<Index>(256, std::max<Index>(1, tokens / 2));
  const Index decoded = query_rows > 0 ? std::min(wanted, query_rows) : wanted;
  return tokens - decoded;
}

std::optional<Index> prompt_length(const std::optional<Value>& given,
                                   const std::optional<Index>& of_dump, Index tokens,
                                   Index query_rows, const std::string& place, ErrorList& errors) {
  if (!given) return default_prompt(tokens, query_rows);
  if (const auto* fraction = std::get_if<double>(&*given)) {
    return static_cast<Index>(std::floor(*fraction * tokens));
  }
  const bool from_dump = std::holds_alternative<std::string>(*given);
  if (from_dump && !of_dump) {
    errors.add("/replay/prompt_tokens",
               fmt::format("\"dump\" asks for the attribute prompt_tokens, which {} does not have; "
                           "give a number",
                           place));
    return std::nullopt;
  }
  const Index prompt = from_dump ? *of_dump : std::get<std::int64_t>(*given);
  if (prompt >= 0 && prompt < tokens) return prompt;
  errors.add("/replay/prompt_tokens",
             fmt::format("must be from 0 to {}, so that at least one of the {} tokens of {} is "
                         "decoded, got {}{}",
                         tokens - 1, tokens, place, prompt, from_dump ? " in the dump" : ""));
  return std::nullopt;
}

}  // namespace kvbench
