#include "algorithms/memory_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
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

std::variant<Params, std::string> solve_memory(const AlgorithmDescription& algorithm,
                                               const Params& params, const StreamShape& shape,
                                               Index prompt, int element_bytes,
                                               const std::function<Index(const KeptCounts&)>& bytes,
                                               Index reach) {
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
  double fewest = std::min(*least, fraction(shape.tokens).value());
  for (Index x = 2; x <= std::min(1 + reach, shape.tokens); ++x) {
    fewest = std::min(fewest, fraction(x).value());
  }
  return fmt::format("{} {} cannot be reached: {} keeps at least {:.4g} of the exact cache here",
                     name, to_string(value), algorithm.id, fewest);
}

}  // namespace kvbench
