// Kernels::score_sums on a device: logits of some rows, their softmax by the rule, sums over the
// rows by token. Scores decide which tokens a method keeps, so all of it is canonical.
#pragma once

#include <vector>

#include "cuda/kernels/device_stream.hpp"
#include "cuda/kernels/logits.hpp"
#include "cuda/kernels/score_bodies.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

template <Machine M>
ScoreSums score_sums(M& machine, const Stream& stream, Index first, Index last,
                     const ScoreRule& rule) {
  const StreamShape& shape = stream.shape;
  const Index n = shape.tokens;
  ScoreSums out(static_cast<std::size_t>(shape.heads_per_kv),
                std::vector<double>(static_cast<std::size_t>(n), 0.0));
  if (last <= first) return out;

  const ScoreView view{rule.noise, weighs_tokens(rule), rule.temperature, rule.decay, rule.gain};
  using Rows = DeviceStream<M>;
  DeviceMatrix keys(machine, first_rows(stream.keys, last));
  const auto room = machine.reserve(
      {.what = "score sums",
       .fixed_bytes = keys.bytes() + 3 * bytes_of_doubles(shape.heads_per_kv * n),
       .row_bytes = Rows::row_bytes(shape) + shape.heads_per_kv * bytes_of_doubles(last + 1),
       .rows = smaller(last - first, larger(1, 65535 * 64 / shape.heads_per_kv))});
  const Index at_once = room.rows() * shape.heads_per_kv;
  Rows device(machine, stream, keys.bring(), room.rows());
  auto weights = machine.template allocate<double>(shape.heads_per_kv * n);
  auto stripe = machine.template allocate<double>(shape.heads_per_kv * n);
  auto sums = machine.template allocate<double>(shape.heads_per_kv * n);
  auto e = machine.template allocate<double>(at_once * last);
  auto factors = machine.template allocate<double>(at_once);
  machine.clear(stripe.data(), shape.heads_per_kv * n);
  machine.clear(sums.data(), shape.heads_per_kv * n);
  NoiseFactors weigh;
  weigh.rule = view;
  weigh.tokens = n;
  weigh.weights = weights.data();
  machine.launch(weigh, {.x = blocks_of(NoiseFactors::kThreads, n), .y = shape.heads_per_kv});
  std::vector<Index> rows;
  for (Index from = first; from < last; from += room.rows()) {
    rows.clear();
    for (Index i = from; i < smaller(from + room.rows(), last); ++i) rows.push_back(i);
    // A stripe's part may lie left of what the batch sees, where an earlier batch began it.
    const Index first_token =
        shape.first_visible(larger(from / kScoreStripeRows * kScoreStripeRows, first));
    const Index columns = rows.back() + 1 - first_token;
    FillLogits fill;
    fill.stream = device.at(rows.data(), static_cast<Index>(rows.size()));
    fill.first_token = first_token;
    fill.columns = columns;
    fill.logits = e.data();
    machine.launch(fill,
                   {.x = blocks_of(64, columns), .y = blocks_of(64, fill.stream.query_count)});
    ScoreExponentials exponentials;
    exponentials.stream = fill.stream;
    exponentials.rule = view;
    exponentials.first_token = first_token;
    exponentials.columns = columns;
    exponentials.e = e.data();
    machine.launch(exponentials, {.x = fill.stream.query_count});
    ScoreFactors normalise;
    normalise.stream = fill.stream;
    normalise.rule = view;
    normalise.first_token = first_token;
    normalise.columns = columns;
    normalise.first_row = first;
    normalise.last_row = last;
    normalise.tokens = n;
    normalise.e = e.data();
    normalise.weights = weights.data();
    normalise.factors = factors.data();
    machine.launch(normalise, {.x = blocks_of(ScoreFactors::kQueries, fill.stream.query_count)});
    GatherScores gather;
    gather.stream = fill.stream;
    gather.rule = view;
    gather.first_token = first_token;
    gather.columns = columns;
    gather.first_row = first;
    gather.last_row = last;
    gather.tokens = n;
    gather.e = e.data();
    gather.factors = factors.data();
    gather.stripe = stripe.data();
    gather.sums = sums.data();
    machine.launch(gather,
                   {.x = blocks_of(GatherScores::kThreads, columns), .y = shape.heads_per_kv});
  }
  std::vector<double> w(static_cast<std::size_t>(n));
  for (Index g = 0; g < shape.heads_per_kv; ++g) {
    std::vector<double>& f = out[static_cast<std::size_t>(g)];
    machine.download(f.data(), sums.data() + g * n, n);
    if (!view.weighs_tokens) continue;
    machine.download(w.data(), weights.data() + g * n, n);
    for (std::size_t j = 0; j < f.size(); ++j) f[j] *= w[j];
  }
  spread_overflow(out);
  return out;
}

// One rule after the other: a device computes the logits again for each.
template <Machine M>
std::vector<ScoreSums> score_sums(M& machine, const Stream& stream, Index first, Index last,
                                  const std::vector<ScoreRule>& rules) {
  std::vector<ScoreSums> out;
  for (const ScoreRule& rule : rules) {
    out.push_back(score_sums(machine, stream, first, last, rule));
  }
  return out;
}

}  // namespace kvbench::cuda
