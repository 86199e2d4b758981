#include "output/counted_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sketch/sketch.hpp"

namespace kvbench {
namespace {

// A stream and a value of the parameter that takes a memory.
struct Size {
  Index prompt = 2048;
  Index decoded = 256;
  Index given = 1024;
  int heads_per_kv = 2;
  Index d = 8;
};

struct Kept {
  Size size;
  Index tokens = 0;
  Index bookkeeping = 0;
};

// The parameter that takes {"memory": F}; null: none does.
const Parameter* memory_parameter(const AlgorithmDescription& algorithm) {
  const auto found = std::ranges::find_if(algorithm.parameters, &Parameter::takes_memory);
  return found == algorithm.parameters.end() ? nullptr : &*found;
}

// The kept sizes; nullopt where parameters and sizes do not decide them.
std::optional<Kept> kept_at(const AlgorithmDescription& algorithm, const Size& size) {
  Params params;
  const Parameter* const given = memory_parameter(algorithm);
  for (const Parameter& parameter : algorithm.parameters) {
    if (&parameter == given) {
      params.set(parameter.name, std::int64_t{size.given});
    } else if (parameter.default_value && !parameter.is_later) {
      params.set(parameter.name, *parameter.default_value);
    }
  }
  StreamShape shape;
  shape.tokens = size.prompt + size.decoded;
  shape.d = shape.dv = size.d;
  shape.heads_per_kv = size.heads_per_kv;
  const auto counts = algorithm.most_kept(params, shape, size.prompt);
  if (!counts) return std::nullopt;
  return Kept{size, counts->tokens, counts->bookkeeping};
}

// The first size, each of its numbers changed alone, and all of them. Halvings change by one.
std::vector<Size> sizes(bool is_halvings) {
  const Index step = is_halvings ? 1 : 64;
  const Size first{.given = is_halvings ? 1 : Size{}.given};
  const Size all{2048 + 128, 256 + 64, first.given + step, 5, 16};
  std::vector<Size> out(5, first);
  out[1].given = all.given;
  out[2].decoded = all.decoded;
  out[3].prompt = all.prompt;
  out[4].heads_per_kv = all.heads_per_kv;
  out.push_back(all);
  return out;
}

// The amount that `counted` grows by per unit of `of`, and a constant, where that holds everywhere.
struct Line {
  Index factor = 0;
  Index constant = 0;
};

std::optional<Line> line(const std::vector<Kept>& all,
                         const std::function<Index(const Kept&)>& counted,
                         const std::function<Index(const Kept&)>& of) {
  Line found;
  for (const Kept& each : all) {
    const Index change = of(each) - of(all[0]);
    if (change == 0) continue;
    found.factor = (counted(each) - counted(all[0])) / change;
    break;
  }
  found.constant = counted(all[0]) - found.factor * of(all[0]);
  const bool holds = std::ranges::all_of(all, [&](const Kept& each) {
    return counted(each) == found.factor * of(each) + found.constant;
  });
  return holds ? std::optional(found) : std::nullopt;
}

std::string with_constant(const std::string& text, Index constant) {
  if (constant == 0) return text;
  return fmt::format("{} {} {}", text, constant > 0 ? '+' : '-', std::abs(constant));
}

std::optional<std::string> tokens_text(const std::vector<Kept>& all, const Parameter* given) {
  const auto tokens = [](const Kept& kept) { return kept.tokens; };
  const auto line_of = [&](const auto& of) { return line(all, tokens, of); };
  if (line_of([](const Kept& k) { return k.size.prompt + k.size.decoded; })) {
    return "every token";
  }
  if (given == nullptr) return std::nullopt;
  if (given->is_halvings) {
    const auto outside = [](const Kept& k) {
      return k.tokens - k.size.decoded - (k.size.prompt >> k.size.given);
    };
    // Sinks and recent tokens s are kept whole: s (1 - 2^-T) of them besides 2^-T of the prompt.
    const bool holds = std::ranges::all_of(all, [&](const Kept& k) {
      const Index whole = 2 * outside(all[0]);
      return outside(k) == whole - (whole >> k.size.given);
    });
    if (!holds) return std::nullopt;
    return fmt::format(
        "2^-{} of the prompt's middle, its sinks and recent tokens, and every decoded token",
        given->name);
  }
  const auto of_given = [](const Kept& k) { return k.size.given; };
  if (const auto found = line_of(of_given); found && found->factor == 1) {
    return fmt::format("at most {} tokens", with_constant(given->name, found->constant));
  }
  const auto found = line_of([](const Kept& k) { return k.size.given + k.size.decoded; });
  if (!found || found->factor != 1) return std::nullopt;
  return fmt::format("{} tokens of the prompt and every decoded token",
                     with_constant(given->name, found->constant));
}

// Numbers that are stored besides keys and values; empty: nothing.
std::optional<std::string> bookkeeping_text(const std::vector<Kept>& all) {
  const auto numbers = [](const Kept& kept) { return kept.bookkeeping; };
  if (std::ranges::all_of(all, [&](const Kept& kept) { return numbers(kept) == 0; })) return "";
  struct Unit {
    std::string name;
    std::function<Index(const Kept&)> of;
  };
  const std::vector<Unit> units = {
      {"kept token and query head", [](const Kept& k) { return k.tokens * k.size.heads_per_kv; }},
      {"kept token", [](const Kept& k) { return k.tokens; }},
      {"kept token of the prompt", [](const Kept& k) { return k.tokens - k.size.decoded; }},
      {"query head and dimension", [](const Kept& k) { return k.size.heads_per_kv * k.size.d; }}};
  for (const Unit& unit : units) {
    const auto found = line(all, numbers, unit.of);
    if (!found || found->factor <= 0) continue;
    std::string text =
        fmt::format(", and {} bytes per {}", found->factor * kBookkeepingBytes, unit.name);
    if (found->constant > 0)
      text += fmt::format(" and {} bytes more", found->constant * kBookkeepingBytes);
    if (found->constant < 0) {
      text += fmt::format(" except {} of them", -found->constant / found->factor);
    }
    return text;
  }
  return std::nullopt;
}

}  // namespace

std::string counted_memory(const AlgorithmDescription& algorithm) {
  const Parameter* const given = memory_parameter(algorithm);
  std::vector<Kept> all;
  if (algorithm.most_kept) {
    for (const Size& size : sizes(given != nullptr && given->is_halvings)) {
      if (const auto kept = kept_at(algorithm, size)) all.push_back(*kept);
    }
  }
  if (all.empty()) {
    const std::string& rule = algorithm.for_less_memory;
    return (rule.empty() ? "follows from the data or the layer" : rule) +
           "; a cell's `memory` has the peak";
  }
  const auto tokens = tokens_text(all, given);
  const auto bookkeeping = bookkeeping_text(all);
  if (tokens && bookkeeping) return *tokens + *bookkeeping;
  const Kept& first = all[0];
  return fmt::format(
      "{}at most {} tokens and {} bytes besides, of a prompt of {} tokens and {} decoded ones with "
      "{} query heads per KV head of d = {}",
      given ? fmt::format("with {} = {} ", given->name, first.size.given) : "", first.tokens,
      first.bookkeeping * kBookkeepingBytes, first.size.prompt, first.size.decoded,
      first.size.heads_per_kv, first.size.d);
}

}  // namespace kvbench
