#include "support/kernel_contracts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cuda/self_test.hpp"
#include "numerics/counter_rng.hpp"
#include "support/kernel_cases.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace {

std::vector<Index> rows_from(const Stream& stream, Index first, Index step) {
  std::vector<Index> rows;
  for (Index i = std::max(first, stream.shape.first_query); i < stream.shape.tokens; i += step) {
    rows.push_back(i);
  }
  return rows;
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

bool same_bits(std::span<const double> a, std::span<const double> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return same_bits(x, y); });
}

// The largest difference over 1e-9 of the larger magnitude of the two vectors; above 1 is too much.
double over_limit(std::span<const double> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double size = 0.0;
  double difference = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::isfinite(a[i]));
    size = std::max({size, std::fabs(a[i]), std::fabs(b[i])});
    difference = std::max(difference, std::fabs(a[i] - b[i]));
  }
  return difference == 0.0 ? 0.0 : difference / (1e-9 * size);
}

// The part [at, at + count) of a vector.
std::span<const double> part(std::span<const double> x, std::size_t at, Index count) {
  return x.subspan(at, static_cast<std::size_t>(count));
}

template <class Check>
void each_case(const Check& check) {
  for (const KernelCase& c : kernel_cases()) {
    CAPTURE(std::string(c.name));
    const auto owned = make_stream(c.spec);
    check(owned->stream);
  }
}

void check_attention(const Kernels& kernels) {
  each_case([&](const Stream& stream) {
    for (const Index step : {1, 7}) {
      check_exact_attention(kernels, stream, rows_from(stream, 0, step));
    }
  });
}

void check_logits(const Kernels& kernels) {
  each_case([&](const Stream& stream) {
    const Index n = stream.shape.tokens;
    for (const std::vector<Index>& rows :
         {rows_from(stream, 0, 5), rows_from(stream, n / 2, 1), std::vector<Index>{n - 1}}) {
      LogitBlock cpu;
      LogitBlock other;
      other.logits.assign(10, -7.0);  // blocks are used again
      cpu_kernels().logits(stream, rows, cpu);
      kernels.logits(stream, rows, other);
      REQUIRE(other.rows == cpu.rows);
      REQUIRE(other.tokens == cpu.tokens);
      REQUIRE(other.logits.size() == cpu.logits.size());
      REQUIRE(other.exps.size() == cpu.exps.size());
      CHECK(other.max_logit == cpu.max_logit);
      int differing = 0;
      const auto heads = static_cast<std::size_t>(stream.shape.heads_per_kv);
      for (std::size_t place = 0; place < rows.size() * heads; ++place) {
        const Index row = rows[place / heads];
        for (Index j = stream.shape.first_visible(row); j <= row; ++j) {
          const std::size_t at =
              place * static_cast<std::size_t>(cpu.tokens) + static_cast<std::size_t>(j);
          differing += !same_bits(other.logits[at], cpu.logits[at]);
          differing += !same_bits(other.exps[at], cpu.exps[at]);
        }
      }
      CHECK(differing == 0);
    }
  });
}

void check_score_sums(const Kernels& kernels) {
  using Kind = LogitNoise::Kind;
  const CounterRng random(3, 17, "test/noise");
  const std::vector<ScoreRule> rules = {
      {},
      {.noise = {}, .temperature = 1.7},
      {.noise = {}, .decay = 0.9, .gain = 0.1},
      {.noise = {Kind::kGumbel, false, random.key()}, .temperature = 2.0},
      {.noise = {Kind::kGaussian, true, random.key()}, .temperature = 1.3, .decay = 0.99},
      {.noise = {Kind::kConstant, false, random.key()}},
  };
  each_case([&](const Stream& stream) {
    const Index n = stream.shape.tokens;
    const Index from = stream.shape.first_query;
    for (const ScoreRule& rule : rules) {
      for (const auto& [first, last] :
           std::vector<std::pair<Index, Index>>{{from, n}, {n - (n - from + 2) / 3, n - n / 9}}) {
        if (last - first > 700) continue;
        const auto cpu = cpu_kernels().score_sums(stream, first, last, rule);
        const auto other = kernels.score_sums(stream, first, last, rule);
        REQUIRE(other.size() == cpu.size());
        for (std::size_t g = 0; g < cpu.size(); ++g) CHECK(same_bits(other[g], cpu[g]));
      }
    }
  });
}

void check_clusters(const Kernels& kernels) {
  each_case([&](const Stream& stream) {
    for (const ConstMatrix points : {stream.keys, stream.values}) {
      for (const double delta : {0.0, 0.3, 1.0, 2.0, 5.0, 15.0, 1e9}) {
        CAPTURE(delta);
        for (const Index first : {Index{0}, points.rows / 3, points.rows}) {
          const Clustering cpu = cpu_kernels().cluster(points, first, delta);
          const Clustering other = kernels.cluster(points, first, delta);
          CHECK(other.delta == cpu.delta);
          CHECK(other.first == cpu.first);
          CHECK(other.assignment == cpu.assignment);
          CHECK(other.opened_by == cpu.opened_by);
        }
      }
    }
  });
  // Equal distances to representatives far apart in age: the oldest wins across tiles of them.
  const auto ties = make_stream({.tokens = 900, .d = 6, .kind = StreamKind::kTies});
  for (const double delta : {0.0, 1.0}) {
    const Clustering cpu = cpu_kernels().cluster(ties->stream.keys, 0, delta);
    CHECK(cpu.opened_by.size() > 64);
    CHECK(kernels.cluster(ties->stream.keys, 0, delta).assignment == cpu.assignment);
  }
  // Distances that overflow open a cluster each; views whose rows lie apart.
  const auto owned = make_stream({.tokens = 300, .d = 6, .kind = StreamKind::kClustered});
  for (double& x : owned->keys) x *= 1e200;
  CHECK(kernels.cluster(owned->stream.keys, 0, 1.0).opened_by ==
        cpu_kernels().cluster(owned->stream.keys, 0, 1.0).opened_by);
  const auto wide = make_stream({.tokens = 300, .d = 8, .kind = StreamKind::kTies});
  const ConstMatrix narrow(wide->stream.keys.data + 1, 300, 5, 8);
  CHECK(kernels.cluster(narrow, 10, 1.5).assignment ==
        cpu_kernels().cluster(narrow, 10, 1.5).assignment);
}

void check_centers(const Kernels& kernels) {
  each_case([&](const Stream& stream) {
    const Index n = stream.shape.tokens;
    struct Range {
      Index first, last, start, count;
    };
    for (const Range& r : {Range{0, n, 0, std::min<Index>(n, 40)}, Range{0, n, n - 1, 3 * n},
                           Range{n / 4, n - n / 5, n / 4, 7}, Range{n, n, n, 4}}) {
      if (r.count > 400) continue;
      const Centers cpu =
          cpu_kernels().farthest_first(stream.keys, r.first, r.last, r.start, r.count);
      const Centers other = kernels.farthest_first(stream.keys, r.first, r.last, r.start, r.count);
      CHECK(other.tokens == cpu.tokens);
      CHECK(same_bits(other.radius, cpu.radius));
      CHECK(other.nearest == cpu.nearest);
    }
  });
}

void check_value_norms(const Kernels& kernels) {
  const auto compare = [&](const Stream& stream, const std::vector<Index>& rows) {
    std::vector<double> cpu[2];
    std::vector<double> other[2];
    cpu_kernels().value_norms(stream, rows, cpu[0], cpu[1]);
    kernels.value_norms(stream, rows, other[0], other[1]);
    for (const int which : {0, 1}) {
      REQUIRE(other[which].size() == rows.size());
      double worst = 0.0;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        worst = std::max(worst, over_limit(part(other[which], r, 1), part(cpu[which], r, 1)));
      }
      CHECK(worst <= 1.0);
    }
  };
  each_case([&](const Stream& stream) {
    const Index n = stream.shape.tokens;
    std::vector<Index> rows;
    for (Index i = 0; i < n; i += 1 + n / 12) rows.push_back(i);
    compare(stream, rows);
    compare(stream, {n - 1});
    compare(stream, {n - 1, n / 2, n / 2, n - 1});  // any order
    compare(stream, {});
  });
  // Sizes far from 1, and one value that dwarfs the others until it leaves the window.
  for (const double size : {1e-120, 1e120}) {
    const auto owned = make_stream({.tokens = 80, .d = 3, .dv = 30, .window = 20});
    for (double& x : owned->values) x *= size;
    for (std::size_t k = 0; k < 30; ++k) owned->values[40 * 30 + k] *= 1e6;
    compare(owned->stream, {39, 40, 50, 59, 60, 79});
  }
}

void check_weighted_values(const Kernels& kernels) {
  each_case([&](const Stream& stream) {
    const auto cpu = cpu_kernels().weighted_values(stream.values);
    const auto other = kernels.weighted_values(stream.values);
    const CounterRng random(7, 0, "test/weights");
    for (const std::uint32_t questions : {1U, 3U, 70U}) {
      for (std::uint32_t q = 0; q < questions; ++q) {
        std::vector<std::int32_t> tokens;
        std::vector<double> c;
        for (Index j = 0; j < stream.shape.tokens; ++j) {
          const double u = random.uniform53(static_cast<std::uint32_t>(j), q);
          // Three questions about all tokens, two about some, one about none, ..
          if (q % 6 == 5 || (q % 6 > 2 && u < 0.3)) continue;
          tokens.push_back(static_cast<std::int32_t>(j));
          c.push_back(u < 0.4 ? 0.0 : std::ldexp(u - 0.7, static_cast<int>(j % 40) - 20));
        }
        for (WeightedValues* each : {cpu.get(), other.get()}) {
          std::copy(c.begin(), c.end(), each->ask(tokens));
        }
      }
      CHECK(other->questions() == cpu->questions());
      std::vector<double> expected;
      std::vector<double> sums(3, -7.0);
      cpu->sums(expected);
      other->sums(sums);
      REQUIRE(sums.size() == expected.size());
      CHECK(same_bits(sums, expected));
      CHECK(other->questions() == 0);
    }
    std::vector<double> none(2);
    other->sums(none);
    CHECK(none.empty());
  });
}

void check_resident_streams(const Kernels& kernels) {
  const auto owned = make_stream({.tokens = 300, .d = 9, .dv = 7, .heads_per_kv = 2});
  const Stream& stream = owned->stream;
  const auto check = [&] {
    const std::vector<Index> rows = rows_from(stream, 100, 13);
    LogitBlock blocks[2];
    std::vector<double> norms[4];
    std::vector<double> sums[2];
    int i = 0;
    for (const Kernels* each : {&cpu_kernels(), &kernels}) {
      each->logits(stream, rows, blocks[i]);
      each->value_norms(stream, rows, norms[i], norms[2 + i]);
      const auto weighted = each->weighted_values(stream.values);
      for (const double c : {0.1, 0.7}) std::fill_n(weighted->ask({5, 17, 299}), 3, c);
      weighted->sums(sums[i++]);
    }
    CHECK(blocks[0].max_logit == blocks[1].max_logit);
    CHECK(over_limit(norms[1], norms[0]) <= 1.0);
    CHECK(over_limit(norms[3], norms[2]) <= 1.0);
    CHECK(sums[0] == sums[1]);
    CHECK(kernels.score_sums(stream, 40, 290) == cpu_kernels().score_sums(stream, 40, 290));
    const ExactRows exact = kernels.exact_attention(stream, rows);
    CHECK(over_limit(exact.outputs, cpu_kernels().exact_attention(stream, rows).outputs) <= 1.0);
    for (const ConstMatrix points : {stream.keys, stream.values}) {
      CHECK(kernels.cluster(points, 3, 2.0).assignment ==
            cpu_kernels().cluster(points, 3, 2.0).assignment);
      CHECK(kernels.farthest_first(points, 11, 290, 20, 30).tokens ==
            cpu_kernels().farthest_first(points, 11, 290, 20, 30).tokens);
    }
    // At the same place, other matrices: half of each row, rows twice as long, every second row.
    const double* keys = stream.keys.data;
    for (const ConstMatrix& other : {ConstMatrix(keys, 290, 5, 9), ConstMatrix(keys + 2, 290, 5, 9),
                                     ConstMatrix(keys, 150, 18), ConstMatrix(keys, 150, 9, 18)}) {
      CHECK(kernels.farthest_first(other, 0, other.rows, 0, 30).tokens ==
            cpu_kernels().farthest_first(other, 0, other.rows, 0, 30).tokens);
    }
  };
  for (int round = 0; round < 2; ++round) {
    const auto held = kernels.make_resident(stream);
    check();
    const auto twice = kernels.make_resident(stream);
    check();
  }
  for (double& x : owned->keys) x = 0.5 - x;  // held no longer: other numbers at the same place
  for (double& x : owned->values) x = 1.5 * x - 0.1;
  check();
  const auto changed = kernels.make_resident(stream);
  check();
}

void check_determinism(const Kernels& kernels) {
  const auto owned = make_stream({.tokens = 597, .d = 43, .dv = 41, .heads_per_kv = 2});
  const Stream& stream = owned->stream;
  const std::vector<Index> rows = rows_from(stream, 300, 1);
  const ExactRows first = kernels.exact_attention(stream, rows);
  const ExactRows second = kernels.exact_attention(stream, rows);
  CHECK(same_bits(first.outputs, second.outputs));
  CHECK(same_bits(first.normalizer, second.normalizer));
  CHECK(same_bits(first.squared_sum, second.squared_sum));
  std::vector<double> norms[4];
  kernels.value_norms(stream, rows_from(stream, 0, 30), norms[0], norms[1]);
  kernels.value_norms(stream, rows_from(stream, 0, 30), norms[2], norms[3]);
  CHECK(same_bits(norms[0], norms[2]));
  CHECK(same_bits(norms[1], norms[3]));
}

}  // namespace

void check_exact_attention(const Kernels& kernels, const Stream& stream,
                           const std::vector<Index>& rows) {
  const ExactRows cpu = cpu_kernels().exact_attention(stream, rows);
  const ExactRows other = kernels.exact_attention(stream, rows);
  CHECK(other.rows == cpu.rows);
  CHECK(over_limit(other.max_logit, cpu.max_logit) <= 1.0);
  double worst = 0.0;
  for (std::size_t place = 0; place < cpu.normalizer.size(); ++place) {
    // A logit of size x carries a rounding error of size x times 1e-16 into its exponential.
    const double slack = std::max(1.0, std::fabs(cpu.max_logit[place]) * 1e-6);
    const auto at = place * static_cast<std::size_t>(stream.shape.dv);
    worst = std::max(
        {worst,
         over_limit(part(other.normalizer, place, 1), part(cpu.normalizer, place, 1)) / slack,
         over_limit(part(other.squared_sum, place, 1), part(cpu.squared_sum, place, 1)) / slack,
         over_limit(part(other.outputs, at, stream.shape.dv),
                    part(cpu.outputs, at, stream.shape.dv)) /
             slack});
  }
  CHECK(worst <= 1.0);
}

void check_resident_rows(const Kernels& kernels) {
  const CounterRng random(7, 0, "test/resident rows");
  each_case([&](const Stream& stream) {
    const Index n = stream.shape.tokens;
    for (const std::vector<Index>& rows : {rows_from(stream, n / 2, 1), rows_from(stream, 0, 9)}) {
      LogitBlock block;
      cpu_kernels().logits(stream, rows, block);
      const auto held = kernels.make_rows_resident(stream, rows);
      REQUIRE(held);
      CHECK(held->max_logit() == block.max_logit);
      // Weights of one place, of all query heads of a row (some of them by a part), of several
      // rows that see them all, of none; some are empty.
      AnswerBatch batch;
      const auto heads = static_cast<std::size_t>(stream.shape.heads_per_kv);
      Index first = 0;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        if (r % 4 == 0 || stream.shape.window > 0) first = std::ssize(batch.weights);
        const Index known = std::ssize(batch.weights) - first;
        const Index from =
            known > 0 ? batch.weights.back().token + 1 : stream.shape.first_visible(rows[r]);
        for (Index j = from; j <= rows[r]; ++j) {
          const auto draw = [&](std::uint32_t which) {
            return random.uniform53(static_cast<std::uint32_t>(j), which);
          };
          if (r % 9 == 4 || draw(static_cast<std::uint32_t>(r)) < 0.3) continue;
          const double den =
              r % 7 == 3 ? 1e-260 : std::ldexp(draw(1), static_cast<int>(j % 40) - 20);
          const double num = j % 3 == 0 ? 0.0 : den * (draw(2) - 0.4);
          batch.weights.push_back({num, den, den > 0.0 ? den * std::log(den) : 0.0,
                                   static_cast<std::int32_t>(j), j % 4 == 1});
        }
        const Index count = std::ssize(batch.weights) - first;
        for (std::size_t g = 0; g < (r % 6 == 0 ? std::size_t{1} : heads); ++g) {
          if (r % 6 == 5) continue;
          batch.questions.push_back(
              {static_cast<Index>(r * heads + g), first, g % 3 == 2 ? count / 2 : count});
        }
      }
      std::vector<double> numerators(3, -7.0);
      std::vector<double> expected;
      std::vector<AnswerMasses> masses(2);
      std::vector<AnswerMasses> expected_masses;
      held->answer(batch, numerators, masses);
      cuda::answer_by_logits(stream, block, batch, expected, expected_masses);
      CHECK(same_bits(numerators, expected));
      CHECK(numerators.size() == expected.size());
      CHECK(masses == expected_masses);
      held->answer({}, numerators, masses);
      CHECK(numerators.empty());
      CHECK(masses.empty());
    }
  });
}

void check_walks(const Kernels& kernels) {
  const auto compare = [&](const WalkRule& rule, const WalkSource& tokens,
                           const std::vector<Index>& sizes) {
    std::vector<std::vector<double>> uniforms;
    for (std::size_t w = 0; w < sizes.size(); ++w) {
      const CounterRng random(5, w, "test/coins");
      std::vector<double>& coins = uniforms.emplace_back();
      for (Index j = 0; j < sizes[w]; ++j) {
        coins.push_back(random.uniform(static_cast<std::uint32_t>(j)));
      }
    }
    const auto cpu = cpu_kernels().balance_walks(rule, tokens, uniforms);
    const auto same = [&](const std::vector<WalkResult>& other) {
      REQUIRE(other.size() == cpu.size());
      for (std::size_t w = 0; w < cpu.size(); ++w) {
        CHECK(other[w].signs == cpu[w].signs);
        CHECK(other[w].clamped == cpu[w].clamped);
        CHECK(same_bits(other[w].max_abs_p_minus_half, cpu[w].max_abs_p_minus_half));
        CHECK(other[w].histogram == cpu[w].histogram);
      }
    };
    same(kernels.balance_walks(rule, tokens, uniforms));
    if (const auto matrices = kernels.walk_matrices(sizes, tokens)) {
      same(kernels.balance_walks(rule, *matrices, uniforms));
      same(kernels.balance_walks(rule, *matrices, uniforms));
    }
  };
  each_case([&](const Stream& stream) {
    const Index n = std::min<Index>(stream.shape.tokens, 700);
    for (const bool by_value : {true, false}) {
      for (const std::vector<Index>& sizes :
           {std::vector<Index>{n}, {n - n / 3, n / 3, 1}, {n / 7, n / 2, 0, n / 5, n / 9, n / 9}}) {
        const WalkSource tokens = [&](Index w) {
          std::vector<Index> list;
          for (Index j = 0; j < sizes[w]; ++j) list.push_back(w * n / 7 + j);
          WalkTokens walk;
          walk.kernel.beta = stream.shape.scale;
          walk.kernel.offset = 0.7 * static_cast<double>(w);
          walk.keys = Gathered(stream.keys, list);
          if (by_value) {
            walk.kernel.value_scale = 0.3;
            walk.kernel.value_offset = 0.025;
            walk.values = Gathered(stream.values, list);
          }
          return walk;
        };
        for (const double gain : {1e-3, 0.3, 1e6}) {
          compare({.gain = gain, .first_is_plus = gain == 0.3}, tokens, sizes);
        }
      }
    }
  });
  compare({.gain = 1.0}, [](Index) { return WalkTokens(); }, {});
  // Exponents beyond any double, far below all of them, tied at the cap; products that overflow.
  const auto owned = make_stream({.tokens = 150, .d = 4, .dv = 3, .seed = 9});
  for (double& x : owned->values) x *= 1e160;
  for (const WalkKernel& kernel :
       {WalkKernel{.beta = 100.0, .cap = 1e300}, WalkKernel{.beta = 100.0, .offset = 4000.0},
        WalkKernel{.beta = 100.0}, WalkKernel{.beta = 1e308}, WalkKernel{.beta = -1e308}}) {
    for (const bool by_value : {false, true}) {
      const WalkSource tokens = [&](Index w) {
        std::vector<Index> list(150 - w);
        std::iota(list.begin(), list.end(), 0);
        WalkTokens walk;
        walk.kernel = kernel;
        walk.keys = Gathered(owned->stream.keys, list);
        if (by_value) walk.values = Gathered(owned->stream.values, list);
        return walk;
      };
      compare({.gain = 4.0}, tokens, {150, 149});
    }
  }
}

const std::vector<KernelContract>& kernel_contracts() {
  static const std::vector<KernelContract> contracts = {
      {"exact attention is the CPU's within 1e-9", check_attention, {"exact attention"}},
      {"logits are the CPU's bit by bit", check_logits, {"logits"}},
      {"answers of held rows are those by the CPU's logits, bit by bit",
       check_resident_rows,
       {"answers of resident rows", "masses of resident rows"},
       true},
      {"score sums are the CPU's bit by bit", check_score_sums, {"score sums"}},
      {"clusterings are the CPU's", check_clusters, {"clusterings"}},
      {"centres are the CPU's", check_centers, {"centres"}},
      {"value norms are the CPU's within 1e-9", check_value_norms, {"value norms"}},
      {"walks are the CPU's bit by bit", check_walks, {"walks", "walks by resident matrices"}},
      {"weighted sums of values are the CPU's bit by bit", check_weighted_values, {"answers"}},
      {"a stream that is held gives what it gives without, and none is served stale",
       check_resident_streams},
      {"two calls give the same bits", check_determinism},
  };
  return contracts;
}

}  // namespace kvbench::test
