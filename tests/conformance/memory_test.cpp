// 7. Reported memory equals an independent recount of the sketches.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "algorithms/memory_budget.hpp"
#include "algorithms/registry.hpp"
#include "conformance/points.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace memory_test {

struct Recount {
  Index tokens = 0;
  Index keys = 0;
  Index values = 0;
  Index whole = 0;  // rows with a token's own key and its own value
  Index bookkeeping = 0;
  Index distinct = 0;
  Index lookup = 0;  // bytes, of numbers of 2 bytes and of bits
};

// Bookkeeping by the rule of each algorithm's row, not by what the sketch says.
Recount recount(const Sketch& sketch, const Conformance& row, const Params& params,
                int heads_per_kv) {
  Recount out;
  std::set<Index> tokens;
  for (const SketchRow& each : sketch.rows()) {
    if (each.feature) ++out.values;  // its key follows from the seed
    if (each.token < 0) continue;
    tokens.insert(each.token);
    // A row that weighs nothing may be there for its key alone, a value of its own for its value.
    const bool weighs = each.w_num != 0.0 || each.w_den != 0.0;
    const bool is_counted = each.counts_as_token || (each.keeps_key && weighs);
    out.tokens += is_counted ? each.copies : 0;
    out.keys += each.copies;
    out.values += each.keeps_value ? each.copies : 0;
    const bool is_own = each.own_key < 0 && each.own_value < 0;
    out.whole += is_own && each.keeps_value ? each.copies : 0;
    // A weight that is neither 0 nor 1 must be stored somewhere; equal columns once.
    std::set<double> stored{each.w_num, each.w_den};
    stored.erase(0.0);
    if (stored.size() == 1) stored.erase(1.0);
    if (!row.computes_weights && !stored.empty()) {
      CHECK(each.weight_numbers >= stored.size());
      CHECK(each.weight_numbers <= 2);
    }
    out.bookkeeping += std::ssize(stored);
  }
  if (row.bookkeeping) out.bookkeeping = row.bookkeeping(sketch, params, heads_per_kv);
  out.distinct = std::ssize(tokens);
  out.lookup = 2 * sketch.lookup.held_numbers + (sketch.lookup.held_bits + 7) / 8;
  return out;
}

TEST_CASE("tokens, peaks, numbers and bytes equal a recount of what is held at every decode row") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2},
      {.tokens = 60, .d = 4, .dv = 3, .rope_pairs = 2},  // keys that RoPE turns whole
      {.tokens = 60, .d = 5, .dv = 3, .window = 17},
      {.tokens = 60, .d = 3, .dv = 7, .kind = StreamKind::kSomeZeroValues},
      {.tokens = 60, .d = 5, .dv = 3, .chunk = 17},
      {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 2, .sinks = true, .value_in_key = true}};
  Cases cases;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(repeating(spec, 35));
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        for (const Index prompt : {0, 35}) {
          const Params params = params_for(*subject.algorithm, point.given);
          if (!cases.runs(subject, point.given, params, owned->stream.shape, prompt)) continue;
          CAPTURE(describe(subject.row->id, point.given));
          CAPTURE(spec.window);
          CAPTURE(prompt);
          const MemoryReport memory =
              replay_one(owned->stream, prompt, *subject.algorithm, params, 4).memory;
          // The last chunk may be shorter than the others.
          const Index most = spec.window > 0 ? spec.window : spec.chunk > 0 ? spec.chunk : 60;
          // Where values lie in keys, a token is its key alone.
          const Index of_token = spec.value_in_key ? spec.d : spec.d + spec.dv;
          CHECK(memory.exact_bytes == most * of_token * 2);
          Recount last;
          Index tokens_peak = 0;
          Index peak_bytes = 0;
          Index bytes = 0;
          Index all_peak = 0;  // tokens that a row sees, and rows looked up besides
          Index answered = prompt;
          for (const Sketch& sketch :
               sketches(owned->stream, prompt, *subject.algorithm, params, 4)) {
            const Index seen = answered + 1 - owned->stream.shape.first_visible(answered);
            ++answered;
            last = recount(sketch, *subject.row, params, spec.heads_per_kv);
            const Index within = spec.value_in_key ? last.whole : 0;
            bytes =
                (last.keys * spec.d + (last.values - within) * spec.dv) * 2 + last.bookkeeping * 4;
            tokens_peak = std::max(tokens_peak, last.tokens);
            peak_bytes = std::max(peak_bytes, bytes);
            all_peak = std::max(all_peak, seen * of_token * 2 + last.lookup);
          }
          CHECK(memory.tokens == last.tokens);
          CHECK(memory.tokens_peak == tokens_peak);
          CHECK(memory.distinct_tokens == last.distinct);
          if (subject.algorithm->never_evicts(
                  params)) {  // drops nothing for good: holds what exact holds
            CHECK((last.lookup == 0 || subject.row->looks_up));
            CHECK(memory.lookup_bytes == last.lookup);
            const Index seen = spec.chunk > 0 ? 60 - 59 / spec.chunk * spec.chunk : most;
            CHECK(memory.bytes == seen * of_token * 2 + last.lookup);
            CHECK(memory.peak_bytes == all_peak);
            continue;
          }
          const Index within = spec.value_in_key ? last.whole : 0;
          CHECK(memory.vectors == last.keys + last.values - within);
          CHECK(memory.numbers == last.keys * spec.d + (last.values - within) * spec.dv);
          CHECK(memory.bookkeeping == last.bookkeeping);
          CHECK(memory.bytes == bytes);
          CHECK(memory.peak_bytes == peak_bytes);
          CHECK(memory.fraction == doctest::Approx(static_cast<double>(peak_bytes) /
                                                   static_cast<double>(memory.exact_bytes)));
        }
      }
    }
  }
  cases.check_all_ran();
}

const std::vector<StreamSpec> kShapes = {
    {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2},
    {.tokens = 60, .d = 4, .dv = 3, .rope_pairs = 2},
    {.tokens = 60, .d = 5, .dv = 3, .window = 17},
    {.tokens = 60, .d = 3, .dv = 7, .window = 50}};

bool takes_memory(const Subject& subject) {
  return std::ranges::any_of(subject.algorithm->parameters, &Parameter::takes_memory);
}

// The one that is given as memory.
std::string solved_name(const Params& params) {
  for (const auto& [name, value] : params.entries()) {
    if (std::holds_alternative<MemoryBudget>(value)) return name;
  }
  return "";
}

// The point with its budget, or halvings, as memory; none if it has neither or that cannot be.
std::optional<Params> asking_for_memory(const Subject& subject, const Given& given,
                                        double fraction) {
  for (const Parameter& parameter : subject.algorithm->parameters) {
    Params params = params_for(*subject.algorithm, given);
    if (!parameter.takes_memory || params.find(parameter.name) == nullptr) continue;
    params.set(parameter.name, MemoryBudget{fraction});
    if (subject.algorithm->validate(params)) return std::nullopt;
    return params;
  }
  return std::nullopt;
}

TEST_CASE("most_kept is the peak that a replay counts, whatever the budget") {
  std::set<std::string> ran;
  for (const StreamSpec& spec : kShapes) {
    const auto owned = make_stream(repeating(spec, 35));
    const StreamShape& shape = owned->stream.shape;
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        std::optional<Params> params = asking_for_memory(subject, point.given, 0.5);
        if (!params) continue;
        const std::string name = solved_name(*params);
        for (const Index prompt : {0, 35}) {
          for (const Index budget : {1, 4, 13, 34, 35, 47, 60}) {
            params->set(name, count_of(budget));
            if (reason_to_skip(*subject.algorithm, *params, shape, prompt)) continue;
            const auto most = subject.algorithm->most_kept(*params, shape, prompt);
            if (!most) continue;
            CAPTURE(describe(subject.row->id, point.given));
            CAPTURE(spec.window);
            CAPTURE(prompt);
            CAPTURE(budget);
            const MemoryReport memory =
                replay_one(owned->stream, prompt, *subject.algorithm, *params, 4).memory;
            CHECK(most->tokens == memory.tokens_peak);
            CHECK(bytes_of(*most, shape, 2) == memory.peak_bytes);
            ran.insert(subject.row->id);
          }
        }
      }
    }
  }
  for (const Subject& subject : subjects()) {
    CAPTURE(subject.row->id);
    CHECK(ran.count(subject.row->id) == (takes_memory(subject) ? 1 : 0));
  }
}

TEST_CASE("most_kept is the peak that a replay counts at every point for which it is known") {
  std::set<std::string> ran;
  for (const StreamSpec& spec : kShapes) {
    const auto owned = make_stream(repeating(spec, 35));
    const StreamShape& shape = owned->stream.shape;
    for (const Subject& subject : subjects()) {
      if (!subject.algorithm->most_kept) continue;
      for (const Point& point : subject.row->points) {
        const Params params = params_for(*subject.algorithm, point.given);
        const bool has_budget =
            std::ranges::any_of(subject.algorithm->parameters, [&](const Parameter& parameter) {
              return parameter.takes_memory && params.find(parameter.name) != nullptr;
            });
        if (has_budget && !asking_for_memory(subject, point.given, 0.5)) continue;
        if (reason_to_skip(*subject.algorithm, params, shape, 35)) continue;
        const auto most = subject.algorithm->most_kept(params, shape, 35);
        if (!most) continue;
        CAPTURE(describe(subject.row->id, point.given));
        CAPTURE(spec.window);
        const MemoryReport memory =
            replay_one(owned->stream, 35, *subject.algorithm, params, 4).memory;
        CHECK(bytes_of(*most, shape, 2) == memory.peak_bytes);
        ran.insert(subject.row->id);
      }
    }
  }
  CHECK(ran.count("exact") == 1);
  CHECK(ran.count("balancekv_prefill") == 1);
}

TEST_CASE("a budget solved for memory holds that memory to within one token, and no more") {
  std::set<std::string> ran;
  for (const StreamSpec& spec : kShapes) {
    const auto owned = make_stream(repeating(spec, 35));
    const StreamShape& shape = owned->stream.shape;
    // Keys and values, and the most that any method stores besides: two numbers per query head.
    const double token = 2.0 * static_cast<double>(spec.d + spec.dv) + 8.0 * spec.heads_per_kv;
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        for (const double fraction : {0.2, 0.35, 0.5, 0.77, 0.9, 1.0}) {
          const std::optional<Params> asked = asking_for_memory(subject, point.given, fraction);
          if (!asked) continue;
          for (const Index prompt : {0, 35}) {
            const auto solved = solve_memory(*subject.algorithm, *asked, shape, prompt, 2);
            const auto* params = std::get_if<Params>(&solved);
            if (params == nullptr || reason_to_skip(*subject.algorithm, *params, shape, prompt)) {
              continue;
            }
            CAPTURE(describe(subject.row->id, point.given));
            CAPTURE(fraction);
            CAPTURE(spec.window);
            CAPTURE(prompt);
            const MemoryReport memory =
                replay_one(owned->stream, prompt, *subject.algorithm, *params, 4).memory;
            CHECK(memory.fraction <= fraction);
            const std::string name = solved_name(*params);
            const Index solved_for = std::get<MemoryBudget>(params->at(name)).solved;
            if (name == "T") {  // one halving less holds more than was asked for
              if (solved_for > 0) {
                Params more = *params;
                more.set(name, solved_for - 1);
                CHECK(
                    replay_one(owned->stream, prompt, *subject.algorithm, more, 4).memory.fraction >
                    fraction);
              }
            } else if (solved_for < shape.tokens) {
              // The largest budget may hold less: there is no more to hold.
              CHECK(memory.fraction + token / static_cast<double>(memory.exact_bytes) > fraction);
            }
            ran.insert(subject.row->id);
          }
        }
      }
    }
  }
  for (const Subject& subject : subjects()) {
    CAPTURE(subject.row->id);
    CHECK(ran.count(subject.row->id) == (takes_memory(subject) ? 1 : 0));
  }
}

}  // namespace memory_test
}  // namespace kvbench::test
