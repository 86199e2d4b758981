// balancekv_prefill: T rounds of halving the prompt's middle by a tuned self-balancing walk in
// blocks. This is what the BalanceKV experiments ran.
//
// Source: BalanceKV section 4 with the parameters of its released code.
//   T -> T, block size b -> block, gamma -> gamma, temperature -> temperature,
//   beta -> the layer's scale, S (kept set) -> kept_, eta -> WalkResult::signs
// Departures from the paper, all of them what the released code does: keys are centred per block,
// p is not divided by c R^2, half of the tokens is kept by the rule of `halve` instead of the
// smaller side, numerator weights differ from 2^T (`weights: matched` makes both sums agree).
// Not done: rounding to the model's element type.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "algorithms/balance_statistics.hpp"
#include "algorithms/compress_once.hpp"
#include "core/random.hpp"

namespace kvbench {
namespace {

struct Kept {
  Index token;
  double weight;
};

// Let c be the larger of the first indices at which each sign has occurred h = floor(n/2) times (0
// for a sign that never has). Up to c the sign found at c goes and the other counts double; after c
// all stay. Of those the h of largest weight stay, of equals the earlier.
std::vector<Kept> halve(const std::vector<Kept>& tokens, const std::vector<std::int8_t>& signs) {
  const std::size_t h = tokens.size() / 2;
  std::vector<Kept> kept;
  if (h == 0) return kept;
  std::size_t c = 0;
  std::size_t count[2] = {0, 0};
  for (std::size_t i = 0; i < signs.size(); ++i) {
    std::size_t& seen = count[signs[i] > 0 ? 1 : 0];
    if (++seen == h) c = std::max(c, i);
  }
  std::vector<Kept> doubled;
  std::vector<Kept> single;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > c) {
      single.push_back(tokens[i]);
    } else if (signs[i] != signs[c]) {
      doubled.push_back({tokens[i].token, 2.0 * tokens[i].weight});
    }
  }
  kept = std::move(doubled);
  kept.insert(kept.end(), single.begin(), single.end());
  kept.resize(std::min(kept.size(), h));
  std::sort(kept.begin(), kept.end(),
            [](const Kept& a, const Kept& b) { return a.token < b.token; });
  return kept;
}

WalkKernel walk_kernel(const Params& params, const StreamShape& shape) {
  WalkKernel kernel;
  kernel.beta = params.real("temperature") * shape.scale;
  kernel.cap = 1e300;
  kernel.value_offset = params.real("value_offset");
  return kernel;
}

// What a block's walk sees. Pads come last in their block, so they touch real tokens through the
// mean alone: a sum over the real keys, divided by the whole block.
WalkTokens walk_tokens(const Stream& stream, const Params& params, const std::vector<Kept>& block) {
  std::vector<Index> tokens;
  for (const Kept& kept : block) tokens.push_back(kept.token);
  WalkTokens walk;
  walk.kernel = walk_kernel(params, stream.shape);
  walk.keys = Gathered(stream.keys, tokens);
  walk.values = Gathered(stream.values, tokens);
  const auto d = static_cast<std::size_t>(stream.shape.d);
  const auto dv = static_cast<std::size_t>(stream.shape.dv);
  std::vector<double>& keys = walk.keys.data;
  if (params.flag("center")) {
    std::vector<double> mean(d, 0.0);
    for (std::size_t i = 0; i < keys.size(); ++i) mean[i % d] += keys[i];
    for (double& x : mean) x /= static_cast<double>(params.integer("block"));
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] -= mean[i % d];
  }
  std::vector<double>& values = walk.values.data;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= block[i / dv].weight;
  return walk;
}

std::vector<std::vector<Kept>> blocks_of(const std::vector<Kept>& tokens, const Params& params) {
  const auto size = static_cast<std::size_t>(params.integer("block"));
  std::vector<std::vector<Kept>> blocks;
  for (std::size_t first = 0; first < tokens.size(); first += size) {
    const std::size_t last = std::min(first + size, tokens.size());
    blocks.emplace_back(tokens.begin() + static_cast<Index>(first),
                        tokens.begin() + static_cast<Index>(last));
  }
  return blocks;
}

std::vector<Kept> whole(PromptRange middle) {
  std::vector<Kept> tokens;
  for (Index j = middle.first; j < middle.last; ++j) tokens.push_back({j, 1.0});
  return tokens;
}

PromptRange middle_of(const Params& params, const StreamShape& shape, Index prompt) {
  return compressed_prompt(shape, prompt, params.tokens("sinks", prompt),
                           params.tokens("recent", prompt))
      .middle;
}

// The matrices of the first round, the same for every seed, T, gamma and weighting.
using FirstRound = std::shared_ptr<const WalkMatrices>;

// None where they would take more memory than they are worth: then each cell walks without.
std::optional<SharedWork> first_round(const Params& params, const StreamShape& shape,
                                      Index prompt) {
  const PromptRange middle = middle_of(params, shape, prompt);
  const Index block = std::min(params.integer("block"), std::max<Index>(middle.size(), 1));
  const Index blocks = middle.size() / block + 1;
  const double bytes = static_cast<double>(blocks) * WalkMatrices::bytes(block);
  if (params.integer("T") == 0 || middle.size() == 0 || bytes > kSharedWalkBytes) {
    return std::nullopt;
  }
  std::string key = "balancekv_prefill/first_round";
  for (const char* name : {"block", "temperature", "value_offset", "center"}) {
    key += "/" + to_string(params.at(name));
  }
  key += "/" + std::to_string(middle.first) + "-" + std::to_string(middle.last);
  return SharedWork{key,
                    [params, middle](const SharedSetting& setting) {
                      const auto blocks = blocks_of(whole(middle), params);
                      std::vector<Index> sizes;
                      for (const auto& each : blocks) {
                        sizes.push_back(static_cast<Index>(each.size()));
                      }
                      FirstRound matrices = setting.kernels.walk_matrices(sizes, [&](Index b) {
                        return walk_tokens(setting.stream, params,
                                           blocks[static_cast<std::size_t>(b)]);
                      });
                      return std::any(std::move(matrices));
                    },
                    bytes};
}

class BalanceKvPrefill final : public CompressOnce {
 public:
  explicit BalanceKvPrefill(const Setting& setting)
      : CompressOnce(setting, setting.params.tokens("sinks", setting.prompt),
                     setting.params.tokens("recent", setting.prompt)),
        draw_(setting.seed, setting.stream.id.hash(), "balancekv_prefill/sign") {}

  Derived derived() const override {
    Derived out = {{"sinks", prompt_.sinks},
                   {"recent", prompt_.recent},
                   {"middle", prompt_.middle.size()},
                   {"kept", kept_},
                   {"weight_sum_numerator", numerator_sum_},
                   {"weight_sum_denominator", denominator_sum_}};
    if (setting_.stream.shape.softcap > 0.0) out.emplace_back("kernel_mismatch", true);
    statistics_.describe(out);
    return out;
  }

  Counters counters() const override { return {.fail = 0, .clamped = statistics_.clamped}; }

 protected:
  void compress_middle(PromptRange middle) override {
    std::vector<Kept> tokens = whole(middle);
    const std::int64_t rounds = setting_.params.integer("T");
    for (std::int64_t round = 0; round < rounds; ++round) {
      tokens = halve(tokens, signs(tokens, static_cast<std::uint32_t>(round)));
    }
    const bool matched = setting_.params.word("weights") == "matched";
    const double rate = std::ldexp(1.0, static_cast<int>(rounds));
    for (const Kept& kept : tokens) {
      SketchRow row = SketchRow::exact(kept.token);
      row.w_num = kept.weight;
      row.w_den = matched ? kept.weight : rate;
      row.weight_numbers = matched ? 1 : 2;
      sketch_.add(row);
      numerator_sum_ += row.w_num;
      denominator_sum_ += row.w_den;
    }
    kept_ = static_cast<Index>(tokens.size());
  }

 private:
  std::vector<std::int8_t> signs(const std::vector<Kept>& tokens, std::uint32_t round) {
    FirstRound first_walks;
    if (round == 0) {
      const auto shared = first_round(setting_.params, setting_.stream.shape, setting_.prompt);
      if (shared) first_walks = setting_.shared.get<FirstRound>(shared->key);
    }
    const auto blocks = blocks_of(tokens, setting_.params);
    std::vector<std::vector<double>> uniforms;
    for (const std::vector<Kept>& block : blocks) {
      std::vector<double>& of_block = uniforms.emplace_back();
      for (const Kept& kept : block) {
        of_block.push_back(draw_.uniform(static_cast<std::uint32_t>(kept.token), 0, round));
      }
    }
    const WalkRule rule{.gain = setting_.params.real("gamma"), .first_is_plus = true};
    const auto tokens_of = [&](Index b) {
      return walk_tokens(setting_.stream, setting_.params, blocks[static_cast<std::size_t>(b)]);
    };
    const auto walks = first_walks != nullptr
                           ? setting_.kernels.balance_walks(rule, *first_walks, uniforms)
                           : setting_.kernels.balance_walks(rule, tokens_of, uniforms);
    std::vector<std::int8_t> all;
    for (const WalkResult& walk : walks) {
      statistics_.add(walk);
      all.insert(all.end(), walk.signs.begin(), walk.signs.end());
    }
    return all;
  }

  Random draw_;
  BalanceStatistics statistics_;
  Index kept_ = 0;
  double numerator_sum_ = 0.0;
  double denominator_sum_ = 0.0;
};

Parameter real(const char* name, double fallback, double minimum, const char* doc) {
  Parameter p;
  p.name = name;
  p.kind = Parameter::Kind::kReal;
  p.minimum = minimum;
  p.fallback = Value{fallback};
  p.doc = doc;
  return p;
}

}  // namespace

AlgorithmDescription describe_balancekv_prefill() {
  AlgorithmDescription d;
  d.id = "balancekv_prefill";
  d.title = "halving by a tuned self-balancing walk in blocks, as evaluated";
  d.source = "BalanceKV section 4 and its released code";
  Parameter levels;
  levels.name = "T";
  levels.maximum = 62;
  levels.doc = "rounds of halving: a part 2^-T of the middle is kept";
  Parameter block;
  block.name = "block";
  block.minimum = 1;
  block.maximum = 1e6;
  block.fallback = Value{std::int64_t{256}};
  block.doc = "tokens that are balanced together";
  Parameter center;
  center.name = "center";
  center.kind = Parameter::Kind::kFlag;
  center.fallback = Value{true};
  center.doc = "subtract each block's mean key";
  d.parameters = {levels,
                  block,
                  real("gamma", 4.0, 0.0, "strength of the walk"),
                  real("temperature", 0.1, 0.0, "multiplies the logits of the kernel"),
                  real("value_offset", 0.025, -1e15, "added to the inner product of two values"),
                  center,
                  choice_parameter("weights", {"released", "matched"},
                                   "released: 2^T in the denominator; matched: as the numerator"),
                  sinks_parameter(256),
                  recent_parameter(Value{std::int64_t{0}})};
  d.randomised = [](const Params&) { return true; };
  d.shared_work = [](const Params& params, const StreamShape& shape, Index prompt, std::uint32_t) {
    std::vector<SharedWork> work;
    if (auto round = first_round(params, shape, prompt)) work.push_back(std::move(*round));
    return work;
  };
  d.create = [](const Setting& setting) { return std::make_unique<BalanceKvPrefill>(setting); };
  return d;
}

}  // namespace kvbench
