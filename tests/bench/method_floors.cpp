#include "bench/method_floors.hpp"

#include <algorithm>
#include <cmath>

#include "bench/floor.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::bench {
namespace {

using S = MethodSizes;

constexpr double kWindow = 32.0;
constexpr double kDelta = 5.5;  // SubGen's radius
constexpr double kBlock = 256.0;
constexpr double kRank = 16.0;
constexpr double kReferences = 256.0;  // rows, of attention_matching
constexpr double kPivots = 12.0;

Work none(const S&) { return {}; }
Work numbers(double count) { return {0.0, 0.0, sizeof(double) * count, 0.0}; }
Work flops(double count) { return {count, 0.0, 0.0, 0.0}; }
Work draws(double count) { return {0.0, 0.0, 0.0, count}; }

// Logits of `pairs` pairs of query and key, and their exponentials.
Work attention(const S& s, double pairs) { return {2.0 * s.d * pairs, pairs, 0.0, 0.0}; }

// The work of attention from the prompt's rows to the tokens that each sees.
Work whole_prompt(const S& s) { return attention(s, s.G * s.P * (s.P + 1.0) / 2.0); }

// The shares of the kept tokens in every decoded row's attention, of exponentials that are there.
Work decoded_shares(const S& s) { return flops(2.0 * s.R * s.G * s.B) + numbers(s.R * s.G * s.B); }

Work window_scores(const S& s) { return attention(s, kWindow * s.G * s.P); }

// Kernel values of `pairs` pairs of tokens, of keys and values.
Work kernel(const S& s, double pairs) { return {2.0 * (s.d + s.dv) * pairs, pairs, 0.0, 0.0}; }

Work clusters(const S& s) {
  const Clustering all = cpu_kernels().cluster(s.stream->keys, 0, kDelta);
  double distances = 0.0;
  std::int32_t open = 0;
  for (const std::int32_t cluster : all.assignment) {
    distances += open;
    open = std::max(open, cluster + 1);
  }
  return flops(2.0 * s.d * distances);
}

// n0 = 4^k points, g: k - g rounds, each with kernel values within buckets of 4^(g + 1) 2^round.
Work thinning(const S& s, double g) {
  const double k = std::floor(std::log(s.P) / std::log(4.0));
  return kernel(s, (k - g) * std::pow(4.0, k) * std::pow(4.0, g + 1.0) / 2.0);
}

// The rows of both least squares: products of all references' shares over the kept, by the smaller
// of both Gram matrices, its Cholesky factor, the right sides.
Work matching(const S& s) {
  const double q = kReferences * s.G;
  const double small = std::min(q, s.B);
  const double large = std::max(q, s.B);
  return attention(s, q * s.P) + flops(small * small * large + small * small * small / 3.0) +
         flops(2.0 * q * s.B * s.dv + 2.0 * small * small * s.dv);
}

Work hashes(const S& s, double bits) { return flops(2.0 * s.d * bits * (s.P + s.R * s.G)); }

Value count(double n) { return Value{static_cast<std::int64_t>(n)}; }

}  // namespace

Work Work::operator+(const Work& other) const {
  return {flops + other.flops, exps + other.exps, bytes + other.bytes, draws + other.draws};
}

double Work::seconds() const {
  const Floor& floor = machine_floor();
  return std::max(flops / floor.fma_flops_one + exps / floor.exps_one,
                  bytes / floor.read_bytes_one) +
         draws / floor.draws_one;
}

Work answer_floor(const MethodSizes& s, const MethodCell& cell) {
  return attention(s, cell.own_keys) + flops(2.0 * s.dv * cell.values_summed) +
         numbers(cell.values_summed - cell.own_keys +
                 s.dv * static_cast<double>(cell.tokens_summed));
}

std::vector<MethodFloor> method_floors(const MethodSizes& sizes) {
  const Given budget = {{"budget", count(sizes.B)}};
  const auto with = [&](const Given& more) {
    Given all = budget;
    all.insert(more.begin(), more.end());
    return all;
  };
  const std::string window = "attention of 32 G P pairs";
  const std::string prompt = "attention of G P^2 / 2 pairs, shares of R G B";
  return {
      {"exact", {}, "", none},
      {"window", budget, "", none},
      {"dilated_window", budget, "", none},
      {"streaming_llm", budget, "", none},
      {"key_attention", budget, prompt,
       [](const S& s) { return whole_prompt(s) + decoded_shares(s); }},
      {"h2o", budget, prompt, [](const S& s) { return whole_prompt(s) + decoded_shares(s); }},
      {"keyformer", budget, prompt + ", n draws",
       [](const S& s) { return whole_prompt(s) + decoded_shares(s) + draws(s.n); }},
      {"tova", budget, "attention of G P pairs, shares of R G B",
       [](const S& s) { return attention(s, s.G * s.P) + decoded_shares(s); }},
      {"roco", budget, prompt, [](const S& s) { return whole_prompt(s) + decoded_shares(s); }},
      {"caote", budget, "attention of G P pairs, shares of R G B, 2 dv R G B for distances",
       [](const S& s) {
         return attention(s, s.G * s.P) + decoded_shares(s) + flops(2.0 * s.dv * s.R * s.G * s.B);
       }},
      {"rkv", budget, "attention of 8 G P pairs, d P^2 for cosines",
       [](const S& s) { return attention(s, 8.0 * s.G * s.P) + flops(s.d * s.P * s.P); }},
      {"snapkv", with({{"window", count(kWindow)}}), window, window_scores},
      {"pyramidkv", with({{"window", count(kWindow)}}), window, window_scores},
      {"adakv", with({{"window", count(kWindow)}}), window, window_scores},
      {"criticalkv", with({{"window", count(kWindow)}, {"norm", Value{std::string("value_l1")}}}),
       window + ", 8 P dv bytes",
       [](const S& s) { return window_scores(s) + numbers(s.P * s.dv); }},
      {"cake", with({{"window", count(kWindow)}}), window, window_scores},
      {"chunkkv", with({{"window", count(kWindow)}}), window, window_scores},
      {"knorm", budget, "8 P d bytes", [](const S& s) { return numbers(s.P * s.d); }},
      {"keydiff", budget, "8 P d bytes, 4 P d",
       [](const S& s) { return numbers(s.P * s.d) + flops(4.0 * s.P * s.d); }},
      {"lagkv", with({{"lag", count(64)}}), "8 P (d + dv) bytes, 4 P (d + dv)",
       [](const S& s) { return numbers(s.P * (s.d + s.dv)) + flops(4.0 * s.P * (s.d + s.dv)); }},
      {"expected_attention", budget,
       "G P d^2 for the covariance, G P (d^2 + 2 d) for its forms, G P exps",
       [](const S& s) {
         return flops(s.G * s.P * (2.0 * s.d * s.d + 2.0 * s.d)) + Work{0.0, s.G * s.P, 0.0, 0.0};
       }},
      {"curdkv", budget, "8 P (d + dv) bytes, 2 P (d + dv)",
       [](const S& s) { return numbers(s.P * (s.d + s.dv)) + flops(2.0 * s.P * (s.d + s.dv)); }},
      {"capkv", budget, "attention of G P pairs, 2 G P dv^2",
       [](const S& s) { return attention(s, s.G * s.P) + flops(2.0 * s.G * s.P * s.dv * s.dv); }},
      {"qfilters", budget, "G P d^2 for the queries' Gram matrix, 2 P d",
       [](const S& s) { return flops(s.G * s.P * s.d * s.d + 2.0 * s.P * s.d); }},
      {"compactor", budget, "attention of 256 G P pairs, 2 P (48 d + 48^2) for the leverage",
       [](const S& s) {
         return attention(s, kBlock * s.G * s.P) + flops(2.0 * s.P * (48.0 * s.d + 48.0 * 48.0));
       }},
      {"uniform", with({{"sinks", count(0)}}), "B draws", [](const S& s) { return draws(s.B); }},
      {"kcenter", budget, "distances to B / 2 centres: d B P",
       [](const S& s) { return flops(s.d * s.B * (s.P - s.B / 2.0)); }},
      {"subgen",
       {{"delta", Value{kDelta}}, {"t", count(4)}, {"s", count(256)}},
       "2 d for each distance to a cluster that is open, n draws",
       [](const S& s) { return clusters(s) + draws(s.n); }},
      {"softmax_balance",
       {{"T", count(2)}, {"sinks", count(0)}},
       "kernel of P^2 / 2 pairs, then of half the tokens of either sum; 3 P draws",
       [](const S& s) {
         return kernel(s, s.P * s.P / 2.0 + s.P * s.P / 8.0) + attention(s, s.P * s.P / 8.0) +
                draws(3.0 * s.P);
       }},
      {"balancekv",
       {{"t", count(512)}, {"T", count(2)}},
       "kernel of 3/4 P t pairs for either sum; 3 P draws",
       [](const S& s) {
         const double pairs = 0.75 * 512.0 * s.P;
         return kernel(s, pairs) + attention(s, pairs) + draws(3.0 * s.P);
       }},
      {"balancekv_prefill",
       {{"T", count(2)}, {"sinks", count(0)}},
       "kernel of 3/2 P 128 pairs; 3/2 P draws",
       [](const S& s) { return kernel(s, 1.5 * s.P * kBlock / 2.0) + draws(1.5 * s.P); }},
      {"thinformer",
       {{"g", count(4)}},
       "kernel of (k - g) 4^(k + g + 1) / 2 pairs, 4^k <= P",
       [](const S& s) { return thinning(s, 4.0); }},
      {"cam", budget, "attention of G n B pairs",
       [](const S& s) { return attention(s, s.G * s.B * (s.n - s.B / 2.0)); }},
      {"d2o", budget, prompt + ", 2 d B (P - B + R) for cosines",
       [](const S& s) {
         return whole_prompt(s) + decoded_shares(s) + flops(2.0 * s.d * s.B * (s.P - s.B + s.R));
       }},
      {"merge_cosine", budget, window + ", 2 d B (P - B) for cosines",
       [](const S& s) { return window_scores(s) + flops(2.0 * s.d * s.B * (s.P - s.B)); }},
      {"kf_merge", budget, window + ", 2 d B (P - B) for cosines",
       [](const S& s) { return window_scores(s) + flops(2.0 * s.d * s.B * (s.P - s.B)); }},
      {"attention_matching", budget,
       "attention of q P pairs, q = 256 G; the smaller Gram matrix of q and B, its factor, the "
       "right sides",
       matching},
      {"wildcat", budget, "12 P (2 d + 12 + 2 dv), 12 P exps, 12 P draws",
       [](const S& s) {
         return flops(kPivots * s.P * (2.0 * s.d + kPivots + 2.0 * s.dv)) +
                Work{0.0, kPivots * s.P, 0.0, kPivots * s.P};
       }},
      {"performer",
       {{"features", count(sizes.B)}},
       "B P (2 d + 2 dv), B P exps, 2 B d draws",
       [](const S& s) { return kernel(s, s.B * s.P) + draws(2.0 * s.B * s.d); }},
      {"quest", budget, "8 P d bytes, 2 d R G n / 16",
       [](const S& s) { return numbers(s.P * s.d) + flops(2.0 * s.d * s.R * s.G * s.n / 16.0); }},
      {"sparq",
       {{"rank", count(kRank)}, {"k", count(sizes.B)}},
       "32 R G n, R G n exps",
       [](const S& s) {
         const double pairs = s.R * s.G * s.n;
         return flops(2.0 * kRank * pairs) + Work{0.0, pairs, 0.0, 0.0};
       }},
      {"loki", with({{"rank", count(kRank)}}), "P d^2, 32 P d, 32 R G n",
       [](const S& s) {
         return flops(s.P * s.d * s.d + 2.0 * kRank * s.P * s.d) +
                flops(2.0 * kRank * s.R * s.G * s.n);
       }},
      {"magicpig",
       {},
       "2 d 1500 (P + R G) for hashes",
       [](const S& s) { return hashes(s, 1500.0); }},
      {"vattention",
       {},
       "8 R G n bytes for the largest logits, 0.02 R G n draws",
       [](const S& s) {
         return numbers(s.R * s.G * s.n) + draws(0.02 * s.R * s.G * (s.n - 256.0));
       }},
      {"hyperattention",
       {{"samples", count(sizes.B - kBlock)}, {"exact_below", count(0)}},
       "14 d (P + R G) for hashes, R G (B - 256) draws",
       [](const S& s) { return hashes(s, 7.0) + draws(s.R * s.G * (s.B - kBlock)); }},
      {"kdeformer",
       {{"samples", count(sizes.B - 64.0)}},
       "14 d (P + R G) for hashes, n dv^2, R G (B - 64) draws",
       [](const S& s) {
         return hashes(s, 7.0) + flops(s.n * s.dv * s.dv) + draws(s.R * s.G * (s.B - 64.0));
       }},
      {"oracle_topk", with({{"group", Value{std::string("none")}}}), "8 R G n bytes",
       [](const S& s) { return numbers(s.R * s.G * s.n); }},
  };
}

}  // namespace kvbench::bench
