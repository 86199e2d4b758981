#include "cuda/self_test.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "numerics/lanes.hpp"
#include "numerics/logit_noise.hpp"

namespace kvbench::cuda {
namespace {

constexpr Index kTokens = 330;
constexpr Index kKeyLength = 21;
constexpr Index kValueLength = 70;
constexpr int kGroup = 3;

// Independent standard normal numbers.
std::vector<double> normal_numbers(Index count, const char* purpose) {
  const CounterRng random(0, 0, purpose);
  std::vector<double> out(count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = normal_quantile(random.uniform53(static_cast<std::uint32_t>(i)));
  }
  return out;
}

bool near(std::span<const double> a, std::span<const double> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::fabs(x - y) <= 1e-9 * std::max(1e-3, std::fabs(y));
  });
}

bool same_visible(const StreamShape& shape, const LogitBlock& a, const LogitBlock& b) {
  if (a.tokens != b.tokens || a.max_logit != b.max_logit) return false;
  for (std::size_t query_index = 0; query_index < b.max_logit.size(); ++query_index) {
    const Index row = b.rows[query_index / shape.heads_per_kv];
    for (Index j = shape.first_visible(row); j <= row; ++j) {
      const std::size_t at = query_index * b.tokens + j;
      if (a.logits[at] != b.logits[at] || a.exps[at] != b.exps[at]) return false;
    }
  }
  return true;
}

bool same_walks(const std::vector<WalkResult>& a, const std::vector<WalkResult>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.signs == y.signs && x.clamped == y.clamped && x.histogram == y.histogram &&
           x.max_abs_p_minus_half == y.max_abs_p_minus_half;
  });
}

std::string walks_that_differ(const Kernels& kernels, const Stream& stream) {
  const std::vector<Index> sizes = {200, 130};
  const WalkSource tokens = [&](Index w) {
    std::vector<Index> list;
    for (Index j = 0; j < sizes[w]; ++j) list.push_back(w + j);
    WalkTokens walk;
    walk.kernel = {.beta = 0.25, .offset = 3.0, .value_scale = 0.01, .value_offset = 0.02};
    walk.keys = Gathered(stream.keys, list);
    walk.values = Gathered(stream.values, list);
    return walk;
  };
  std::vector<std::vector<double>> uniforms;
  for (std::size_t w = 0; w < sizes.size(); ++w) {
    const CounterRng random(0, w, "self-test/coins");
    std::vector<double>& coins = uniforms.emplace_back();
    for (Index j = 0; j < sizes[w]; ++j) {
      coins.push_back(random.uniform(static_cast<std::uint32_t>(j)));
    }
  }
  const WalkRule rule{.gain = 0.2};
  const auto walks = cpu_kernels().balance_walks(rule, tokens, uniforms);
  if (!same_walks(kernels.balance_walks(rule, tokens, uniforms), walks)) return "walks";
  const auto matrices = kernels.walk_matrices(sizes, tokens);
  if (matrices && !same_walks(kernels.balance_walks(rule, *matrices, uniforms), walks)) {
    return "walks by resident matrices";
  }
  return "";
}

std::vector<double> some_weighted_values(const Kernels& kernels, const Stream& stream) {
  const auto weighted = kernels.weighted_values(stream.values);
  const CounterRng random(0, 0, "self-test/weights");
  for (std::uint32_t q = 0; q < 5; ++q) {
    std::vector<std::int32_t> tokens;
    std::vector<double> weights;
    for (std::int32_t j = 0; j < kTokens; j += 1 + static_cast<std::int32_t>(q)) {
      tokens.push_back(j);
      weights.push_back(random.uniform53(static_cast<std::uint32_t>(j), q) - 0.5);
    }
    std::copy(weights.begin(), weights.end(), weighted->ask(tokens));
  }
  std::vector<double> sums;
  weighted->sums(sums);
  return sums;
}

std::string resident_rows_that_differ(const Kernels& kernels, const Stream& stream,
                                      const std::vector<Index>& rows, const LogitBlock& block) {
  const auto resident = kernels.make_rows_resident(stream, rows);
  if (!resident) return "";
  const CounterRng random(0, 0, "self-test/resident");
  AnswerBatch batch;
  for (std::size_t r = 0; r < rows.size(); r += 10) {  // the same weights for all query heads
    const Index first = batch.weights.size();
    for (Index j = stream.shape.first_visible(rows[r]); j <= rows[r]; ++j) {
      const double w =
          random.uniform53(static_cast<std::uint32_t>(j), static_cast<std::uint32_t>(r));
      if (w > 0.1 * (r % 90)) continue;
      batch.weights.push_back({w - 0.5, w, w * std::log(w), static_cast<std::int32_t>(j), w > 0.2});
    }
    const Index count = static_cast<Index>(batch.weights.size()) - first;
    for (Index g = 0; g < kGroup; ++g) {
      batch.questions.push_back({static_cast<Index>(r) * kGroup + g, first, count - count / 3 * g});
    }
  }
  std::vector<double> numerators;
  std::vector<double> expected;
  std::vector<AnswerMasses> masses;
  std::vector<AnswerMasses> expected_masses;
  resident->answer(batch, numerators, masses);
  answer_by_logits(stream, block, batch, expected, expected_masses);
  if (numerators != expected) return "answers of resident rows";
  return resident->max_logit() == block.max_logit && masses == expected_masses
             ? ""
             : "masses of resident rows";
}

std::string first_difference(const Kernels& kernels, const Stream& stream) {
  const Kernels& cpu = cpu_kernels();
  std::vector<Index> rows;
  for (Index i = 200; i < kTokens; ++i) rows.push_back(i);

  const ExactRows exact = kernels.exact_attention(stream, rows);
  const ExactRows exact_cpu = cpu.exact_attention(stream, rows);
  if (!near(exact.outputs, exact_cpu.outputs) || !near(exact.max_logit, exact_cpu.max_logit) ||
      !near(exact.normalizer, exact_cpu.normalizer) ||
      !near(exact.squared_sum, exact_cpu.squared_sum)) {
    return "exact attention";
  }
  LogitBlock block;
  LogitBlock block_cpu;
  kernels.logits(stream, rows, block);
  cpu.logits(stream, rows, block_cpu);
  if (!same_visible(stream.shape, block, block_cpu)) return "logits";
  std::string differing = resident_rows_that_differ(kernels, stream, rows, block_cpu);
  if (!differing.empty()) return differing;

  ScoreRule rule;
  rule.noise = {LogitNoise::Kind::kGumbel, true, CounterRng(1, 2, "self-test/noise").key()};
  rule.temperature = 1.5;
  rule.decay = 0.99;
  if (kernels.score_sums(stream, 0, kTokens, rule) != cpu.score_sums(stream, 0, kTokens, rule)) {
    return "score sums";
  }
  for (const double delta : {0.0, 5.0, 6.5}) {
    const Clustering net = kernels.cluster(stream.keys, 3, delta);
    const Clustering net_cpu = cpu.cluster(stream.keys, 3, delta);
    if (net.assignment != net_cpu.assignment || net.opened_by != net_cpu.opened_by) {
      return "clusterings";
    }
  }
  const Centers centers = kernels.farthest_first(stream.keys, 2, kTokens, 5, 40);
  const Centers centers_cpu = cpu.farthest_first(stream.keys, 2, kTokens, 5, 40);
  if (centers.tokens != centers_cpu.tokens || centers.radius != centers_cpu.radius ||
      centers.nearest != centers_cpu.nearest) {
    return "centres";
  }
  std::vector<double> norms[4];
  kernels.value_norms(stream, rows, norms[0], norms[1]);
  cpu.value_norms(stream, rows, norms[2], norms[3]);
  if (!near(norms[0], norms[2]) || !near(norms[1], norms[3])) return "value norms";
  if (some_weighted_values(kernels, stream) != some_weighted_values(cpu, stream)) return "answers";
  return walks_that_differ(kernels, stream);
}

}  // namespace

void answer_by_logits(const Stream& stream, const LogitBlock& block, const AnswerBatch& batch,
                      std::vector<double>& numerators, std::vector<AnswerMasses>& masses) {
  const Index dv = stream.shape.dv;
  numerators.assign(batch.questions.size() * dv, 0.0);
  masses.assign(batch.questions.size(), {});
  double* numerator = numerators.data();
  for (std::size_t q = 0; q < batch.questions.size(); ++q, numerator += dv) {
    const AnswerBatch::Question& question = batch.questions[q];
    const double* e = block.exps.data() + question.query_index * block.tokens;
    double lanes[4][Lanes::kCount] = {};
    AnswerMasses& mass = masses[q];
    for (Index i = 0; i < question.weights; ++i) {
      const WeightEntry& w = batch.weights[question.first_weight + i];
      const double x = e[w.token];
      const int lane = w.token % Lanes::kCount;
      lanes[0][lane] = std::fma(w.num, x, lanes[0][lane]);
      lanes[1][lane] = std::fma(w.den, x, lanes[1][lane]);
      lanes[2][lane] = std::fma(w.log, x, lanes[2][lane]);
      lanes[3][lane] = std::fma(static_cast<double>(w.kept), x, lanes[3][lane]);
      mass.largest_den = std::max(mass.largest_den, w.den * x);
      const double c = w.num * x;
      for (Index k = 0; k < dv; ++k) {
        numerator[k] = std::fma(c, stream.values(w.token, k), numerator[k]);
      }
    }
    mass.sums.num = Lanes::load(lanes[0]).sum();
    mass.sums.den = Lanes::load(lanes[1]).sum();
    mass.sums.log = Lanes::load(lanes[2]).sum();
    mass.sums.kept = Lanes::load(lanes[3]).sum();
  }
}

std::string kernel_that_differs(const Kernels& kernels) {
  const std::vector<double> keys = normal_numbers(kTokens * kKeyLength, "self-test/keys");
  const std::vector<double> values = normal_numbers(kTokens * kValueLength, "self-test/values");
  const std::vector<double> queries =
      normal_numbers(kGroup * kTokens * kKeyLength, "self-test/queries");
  Stream stream;
  stream.shape.tokens = kTokens;
  stream.shape.d = kKeyLength;
  stream.shape.dv = kValueLength;
  stream.shape.heads_per_kv = kGroup;
  stream.shape.scale = 0.25;
  stream.keys = {keys.data(), kTokens, kKeyLength};
  stream.values = {values.data(), kTokens, kValueLength};
  for (int g = 0; g < kGroup; ++g) {
    stream.queries.emplace_back(queries.data() + g * kTokens * kKeyLength, kTokens, kKeyLength);
  }
  for (const Index window : {0, 130}) {
    for (const double softcap : {0.0, 20.0}) {
      stream.shape.window = window;
      stream.shape.softcap = softcap;
      // Once by copies that are resident, once by copies of each call.
      const auto resident = window == 0 ? kernels.make_resident(stream) : nullptr;
      if (std::string which = first_difference(kernels, stream); !which.empty()) return which;
    }
  }
  return "";
}

}  // namespace kvbench::cuda
