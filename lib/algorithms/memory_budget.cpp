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
        return memory != nullptr && !memory->is_solved();
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
  const Parameter& parameter = *std::ranges::find(algorithm.parameters, name, &Parameter::name);
  // Steps from 1 on, with which what is kept grows: tokens, or halvings from the most down to 0.
  const Index last =
      parameter.is_halvings ? static_cast<Index>(parameter.maximum) + 1 : shape.tokens;
  const auto at_step = [&, &name = name](Index step) {
    memory.solved = parameter.is_halvings ? last - step : step;
    Params solved = params;
    solved.set(name, memory);
    return solved;
  };
  const auto fraction = [&](Index step) -> std::optional<double> {
    const auto kept = algorithm.most_kept(at_step(step), shape, prompt);
    if (!kept) return std::nullopt;
    // The fraction is the one that MemoryMeter reports.
    return (bytes ? bytes(*kept) : bytes_of(*kept, shape, element_bytes)) /
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
  const auto fits = [&](Index step) { return fraction(step).value() <= memory.fraction; };
  if (const auto step = largest_that_fits(1, last, fits, reach)) return at_step(*step);
  const auto why_not = [&](Index step) {
    return skip ? skip(at_step(step)) : reason_to_skip(algorithm, at_step(step), shape, prompt);
  };
  const Index first = first_that_runs(last, [&](Index step) { return !why_not(step); });
  if (first == 0) return why_not(last).value();
  double reached = fraction(first).value();
  for (Index step = first + 1; step <= std::min(first + reach, last); ++step) {
    reached = std::min(reached, fraction(step).value());
  }
  if (!why_not(last)) reached = std::min(reached, fraction(last).value());
  return fmt::format("{} {} cannot be reached: {} keeps at least {} of the exact cache here", name,
                     to_string(value), algorithm.id, rounded_up(reached));
}

}  // namespace kvbench
