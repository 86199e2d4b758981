#include "algorithms/memory_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace kvbench {
namespace {

using Entry = std::pair<std::string, Value>;

const Entry* unsolved(const Params& params) {
  const auto found =
      std::find_if(params.entries().begin(), params.entries().end(), [](const Entry& entry) {
        const auto* memory = std::get_if<MemoryBudget>(&entry.second);
        return memory != nullptr && memory->tokens == 0;
      });
  return found == params.entries().end() ? nullptr : &*found;
}

// The first x in [1, last] that runs, where all do from some x on; 0: none.
Index first_that_runs(Index last, const std::function<bool(Index)>& runs) {
  Index fails = 0;
  Index holds = 1;
  while (!runs(holds)) {
    if (holds == last) return 0;
    fails = holds;
    holds = std::min(2 * holds, last);
  }
  while (holds - fails > 1) {
    const Index middle = fails + (holds - fails) / 2;
    (runs(middle) ? holds : fails) = middle;
  }
  return holds;
}

// With four digits, and not less than `value` > 0.
std::string rounded_up(double value) {
  std::string nearest = fmt::format("{:.4g}", value);
  if (std::strtod(nearest.c_str(), nullptr) >= value) return nearest;
  return fmt::format("{:.4g}", value + std::pow(10.0, std::floor(std::log10(value)) - 3.0));
}

}  // namespace

std::optional<Index> largest_that_fits(Index first, Index last,
                                       const std::function<bool(Index)>& fits, Index reach) {
  if (fits(last)) return last;
  const Index most = last - 1;
  Index fails = first;
  if (fits(first)) {
    Index holds = first;
    fails = last;
    while (fails - holds > 1) {
      const Index middle = holds + (fails - holds) / 2;
      (fits(middle) ? holds : fails) = middle;
    }
  }
  for (Index x = std::min(most, fails + reach); x > fails; --x) {
    if (fits(x)) return x;
  }
  if (fails == first) return std::nullopt;
  return fails - 1;
}

bool asks_for_memory(const Params& params) { return unsolved(params) != nullptr; }

std::variant<Params, std::string> solve_memory(
    const AlgorithmDescription& algorithm, const Params& params, const StreamShape& shape,
    Index prompt, int element_bytes, const std::function<Index(const KeptCounts&)>& bytes,
    Index reach, const std::function<std::optional<std::string>(const Params&)>& skip) {
  const auto& [name, value] = *unsolved(params);
  MemoryBudget memory = std::get<MemoryBudget>(value);
  const auto with_tokens = [&, &name = name](Index tokens) {
    memory.tokens = tokens;
    Params solved = params;
    solved.set(name, memory);
    return solved;
  };
  const auto fraction = [&](Index tokens) -> std::optional<double> {
    const auto kept = algorithm.most_kept(with_tokens(tokens), shape, prompt);
    if (!kept) return std::nullopt;
    // As MemoryMeter reports it.
    return static_cast<double>(bytes ? bytes(*kept) : bytes_of(*kept, shape, element_bytes)) /
           static_cast<double>(exact_bytes(shape, element_bytes));
  };
  const auto least = fraction(1);
  if (!least) {
    return fmt::format(
        "{} {} cannot be solved: the layer has a {} of {} tokens, and "
        "what {} keeps there depends on the data",
        name, to_string(value), shape.chunk > 0 ? "chunk" : "sliding window", shape.reach(),
        algorithm.id);
  }
  const auto tokens = largest_that_fits(
      1, shape.tokens, [&](Index given) { return fraction(given).value() <= memory.fraction; },
      reach);
  if (tokens) return with_tokens(*tokens);
  const auto why_not = [&](Index given) {
    return skip ? skip(with_tokens(given))
                : reason_to_skip(algorithm, with_tokens(given), shape, prompt);
  };
  const Index first = first_that_runs(shape.tokens, [&](Index given) { return !why_not(given); });
  if (first == 0) return why_not(shape.tokens).value();
  double reached = fraction(first).value();
  for (Index given = first + 1; given <= std::min(first + reach, shape.tokens); ++given) {
    reached = std::min(reached, fraction(given).value());
  }
  if (!why_not(shape.tokens)) reached = std::min(reached, fraction(shape.tokens).value());
  return fmt::format("{} {} cannot be reached: {} keeps at least {} of the exact cache here", name,
                     to_string(value), algorithm.id, rounded_up(reached));
}

}  // namespace kvbench
