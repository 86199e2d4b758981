#include "support/changing_sketches.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/row_block.hpp"
#include "sketch/estimator.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace {

std::string difference(const Answer& a, const Answer& b) {
  if (a.answer != b.answer) return "answer";
  if (a.numerator != b.numerator) return "numerator";
  if (a.normalizer != b.normalizer) return "normalizer";
  if (a.empty_denominator != b.empty_denominator) return "empty denominator";
  if (a.kept_mass != b.kept_mass) return "kept mass";
  if (a.numerator_mass != b.numerator_mass) return "numerator mass";
  if (a.denominator_mass != b.denominator_mass) return "denominator mass";
  if (a.clamped != b.clamped) return "clamped";
  if (a.kl_divergence != b.kl_divergence) return "KL divergence";
  return a.rows_are_tokens == b.rows_are_tokens ? "" : "rows are tokens";
}

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : bits_(seed) {}
  Index below(Index n) { return static_cast<Index>(bits_() % static_cast<std::uint64_t>(n)); }
  bool one_in(Index n) { return below(n) == 0; }
  double unit() { return std::uniform_real_distribution<double>(0.0, 1.0)(bits_); }

 private:
  std::mt19937_64 bits_;
};

// Tokens up to `row`, empty places, weights of any kind.
SketchRow random_row(Draw& draw, Index row) {
  SketchRow out;
  out.token = draw.one_in(12) ? -1 : static_cast<std::int32_t>(draw.below(row + 1));
  out.w_num = draw.one_in(4) ? 0.0 : draw.unit() - (draw.one_in(3) ? 0.5 : 0.0);
  out.w_den = draw.one_in(4) ? 0.0 : draw.one_in(20) ? 1e-260 : 2.0 * draw.unit();
  if (draw.one_in(3)) out.w_num = out.w_den = 1.0;
  out.keeps_value = !draw.one_in(3);
  out.scaled = draw.one_in(3);
  return out;
}

void change(Draw& draw, std::vector<Sketch>& sketches, Sketch& sketch, Index row, Index dv) {
  const Index size = sketch.size();
  const Index what = draw.below(40);
  if (what < 20 || size == 0) {
    sketch.add(random_row(draw, row));
  } else if (what < 28) {
    sketch.replace(draw.below(size), random_row(draw, row));
  } else if (what < 31) {
    sketch.set_weights(draw.below(size), draw.unit(),
                       draw.one_in(4) ? -0.1 * draw.unit() : draw.unit());
  } else if (what < 32) {
    const Index first = draw.one_in(2) ? 0 : draw.below(size);
    sketch.erase(first, std::min(size, first + 1 + draw.below(3)));
  } else if (what < 33) {
    sketch.clear();
  } else if (what < 35) {
    sketch.numerator_scale = draw.one_in(5) ? 0.0 : draw.unit();
  } else if (what < 36) {
    sketch.exact_numerator = !sketch.exact_numerator;
  } else if (what < 37) {
    sketch.exact_denominator = !sketch.exact_denominator;
  } else if (what < 38 && draw.one_in(3)) {
    const auto range = static_cast<std::size_t>(dv);
    sketch.answer_rule =
        sketch.answer_rule
            ? nullptr
            : std::make_shared<const AnswerRule>(AnswerRule{0.5, std::vector<double>(range, -0.5),
                                                            std::vector<double>(range, 0.5)});
  } else if (what < 38) {
    sketch = sketches[draw.below(3)];
  } else if (what < 39) {
    std::swap(sketch, sketches[draw.below(3)]);
  } else {
    SketchRow merged = random_row(draw, row);
    if (merged.token < 0) return;
    merged.own_value = static_cast<std::int32_t>(sketch.own_values.size());
    sketch.own_values.emplace_back(static_cast<std::size_t>(dv), draw.unit());
    sketch.add(merged);
  }
}

// The first tokens and the last ones, up to `row`.
void slide(Sketch& window, Index sinks, Index budget, Index row) {
  const Index next = window.size() == 0 ? 0 : window[window.size() - 1].token + 1;
  window.add_exact(next, row + 1);
  window.erase(sinks, window.size() - (budget - sinks));
}

// The last tokens at positions of the cache.
Sketch turned(const Stream& stream, Index row) {
  Sketch out;
  out.add_exact(std::max(stream.shape.first_visible(row), row - 5), row + 1);
  out.cache_positions = true;
  return out;
}

}  // namespace

void check_changing_sketches(const Kernels& kernels, bool sinks, std::uint64_t seed,
                             AnswerCounts& counts) {
  Draw draw(seed);
  StreamSpec spec{.tokens = 30 + draw.below(120), .d = 4, .dv = 1 + draw.below(20)};
  spec.heads_per_kv = 1 + static_cast<int>(draw.below(3));
  spec.query_size = draw.one_in(3) ? 500.0 : 1.0;  // rows far below the largest logit
  spec.rope_pairs = 2;
  spec.sinks = sinks && draw.one_in(3);
  const auto owned = make_stream(spec);
  const Stream& stream = owned->stream;
  std::vector<Index> rows;
  for (Index i = draw.below(20); i < spec.tokens; i += 1 + draw.below(3)) rows.push_back(i);
  const ExactRows exact = cpu_kernels().exact_attention(stream, rows);
  BlockRoom room;
  const RowBlock block(stream, kernels, rows, room);
  LogitBlock logits;
  cpu_kernels().logits(stream, rows, logits);

  Estimator estimator(stream, kernels, &block);
  std::vector<Answer> expected;
  std::size_t answered = 0;
  const auto answer = [&] {
    estimator.flush([&](const Answer& estimate) {
      REQUIRE(answered < expected.size());
      CHECK(difference(estimate, expected[answered++]) == "");
      ++counts.answers;
      counts.empty += estimate.empty_denominator;
      counts.merged += !estimate.rows_are_tokens;
    });
    CHECK(answered == expected.size());
  };
  std::vector<Sketch> sketches(3);
  Sketch window;
  const Index kept_first = draw.below(4);
  const Index budget = kept_first + 1 + draw.below(40);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    // A row's weights may go on from the last one's, be asked for twice, or be another sketch's.
    for (Index times = draw.below(3); times >= 0; --times) {
      const bool slides = draw.one_in(3);
      Sketch& sketch = slides ? window : sketches[draw.below(3)];
      if (slides) slide(window, kept_first, budget, rows[r]);
      for (Index changes = slides ? 0 : draw.below(6); changes > 0; --changes) {
        change(draw, sketches, sketch, rows[r], spec.dv);
      }
      const Sketch asked = draw.one_in(8) ? turned(stream, rows[r]) : Sketch();
      const Sketch& taken = asked.cache_positions ? asked : sketch;
      estimator.set_sketch(taken);
      for (int g = 0; g < spec.heads_per_kv; ++g) {
        const Index query_index = static_cast<Index>(r) * spec.heads_per_kv + g;
        QueryRow query{rows[r], g, query_index, exact_of(exact, query_index, spec.dv), {}};
        estimator.enqueue(query);
        query.logits = logits_of(logits, query_index);
        Estimator anew(stream, cpu_kernels());
        anew.set_sketch(taken);
        anew.enqueue(query);
        anew.flush([&](const Answer& estimate) { expected.push_back(estimate); });
      }
      if (draw.one_in(10)) answer();
    }
  }
  answer();
}

}  // namespace kvbench::test
