#include "algorithms/mechanisms/model_scope.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/last_lowest.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/aligned.hpp"
#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"
#include "system/parallel.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

constexpr Index kRowsAtOnce = 30;  // half of kRowsInMemory, for two threads
constexpr Index kMinRows = 512;    // decode rows for which the streams are read once
// The same where they are in memory: more rows mean more tokens that are kept no longer.
constexpr Index kRowsInMemory = 60;

// A pass over the prompts of all streams.
struct PromptPass {
  std::vector<double> totals;  // per token: its scores, summed over all query heads
  Index heads = 0;             // query heads of the scope
  StreamShape shape;           // shape of the last stream
};

PromptPass prompt_pass(const ModelContext& context, const Scoring& scoring, Index budget,
                       std::uint32_t seed) {
  PromptPass pass;
  pass.totals.assign(context.tokens, 0.0);
  context.for_each_stream([&](const Stream& stream) {
    throw_if_stopped();
    pass.heads += stream.shape.heads_per_kv;
    pass.shape = stream.shape;
    const Index visible = visible_prompt(stream.shape, context.prompt).size();
    if (!scoring.scores_prompt(visible, budget)) return;
    const ScoreSums sums =
        PromptScores(scoring, seed).compute({stream, context.prompt, context.kernels});
    for (const std::vector<double>& head : sums) {
      for (std::size_t j = 0; j < pass.totals.size(); ++j) pass.totals[j] += head[j];
    }
  });
  return pass;
}

// The prompt's best budget - recent tokens and its last `recent`, or all if they fit.
std::vector<Index> kept_of_prompt(const PromptPass& pass, Index prompt, Index budget,
                                  Index recent) {
  const PromptRange visible = visible_prompt(pass.shape, prompt);
  const Index last = std::min(recent, visible.size());
  const auto totals = pass.totals.begin();
  const Index best = visible.size() <= budget ? visible.size() : budget - recent;
  std::vector<Index> kept =
      best_tokens({totals + visible.first, totals + (prompt - last)}, visible.first, best);
  for (Index j = prompt - last; j < prompt; ++j) kept.push_back(j);
  return kept;
}

// Noisy logits of decode rows [first, last) and every query head of the scope against the tokens
// that any of them can hold: those kept before `first`, then the rows' own.
struct DecodeLogits {
  std::vector<Index> columns;          // tokens, ascending
  Index stride = 0;                    // elements between rows
  std::vector<UnfilledDoubles> heads;  // [heads][rows, stride], of the columns that a row sees
  std::vector<double> sinks;           // [heads] -infinity: none
};

// Into `out`, whose memory is used again.
void decode_logits(const ModelContext& context, const Scoring& scoring, std::uint32_t seed,
                   const std::vector<Index>& kept, Index first, Index last, DecodeLogits& out) {
  out.columns = kept;
  for (Index j = first; j < last; ++j) out.columns.push_back(j);
  const auto columns = std::ssize(out.columns);
  out.stride = PackedKeys::whole_steps(columns);
  out.sinks.clear();
  const std::vector<std::int32_t> tokens(out.columns.begin(), out.columns.end());
  context.for_each_stream([&](const Stream& stream) {
    const LogitNoise noise = scoring.noise_on(stream, seed);
    const std::size_t first_head = out.sinks.size();
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) out.sinks.push_back(stream.sink(g));
    if (out.heads.size() < out.sinks.size()) out.heads.resize(out.sinks.size());
    for (std::size_t h = first_head; h < out.sinks.size(); ++h) {
      const std::size_t numbers = (last - first) * out.stride;
      if (numbers > out.heads[h].capacity())
        out.heads[h] = UnfilledDoubles();  // nothing of it is to be copied
      out.heads[h].resize(numbers);
    }
    const PackedKeys keys(stream.keys, tokens);
    parallel_for((last - first + kRowsAtOnce - 1) / kRowsAtOnce, [&](Index block) {
      const Index start = first + block * kRowsAtOnce;
      const Index end = std::min(start + kRowsAtOnce, last);
      const Index seen_by_last = PackedKeys::whole_steps(columns - (last - end));
      for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
        std::vector<const double*> queries;
        for (Index row = start; row < end; ++row) queries.push_back(stream.query(g, row));
        double* x = out.heads[first_head + g].data() + (start - first) * out.stride;
        keys.logits(stream.shape, queries, 0, seen_by_last, x, out.stride);
        if (!stream.shape.alibi && noise.is_none()) continue;
        for (Index row = start; row < end; ++row, x += out.stride) {
          const auto visible = std::lower_bound(out.columns.begin(), out.columns.end(),
                                                stream.shape.first_visible(row));
          for (Index c = visible - out.columns.begin(); c < columns - (last - 1 - row); ++c) {
            const Index token = out.columns[c];
            add_alibi(stream, g, row, token, token + 1, x + c);
            if (!noise.is_none()) x[c] += noise.draw(g, row, token);
          }
        }
      }
    });
  });
}

// Query heads whose sums run side by side: each is one chain of additions.
constexpr int kHeadsAbreast = 4;

// sums[h] = sum over p < count of e[h * stride + p], ascending.
void ascending_sums(const double* e, std::size_t stride, std::size_t count, double* sums) {
  double sum[kHeadsAbreast] = {};
  for (std::size_t p = 0; p < count; ++p) {
    unrolled<kHeadsAbreast>([&](auto h) { sum[h] += e[h * stride + p]; });
  }
  std::copy(sum, sum + kHeadsAbreast, sums);
}

// Adds every head's scores over the kept columns at one of the rows, counted from the first. `e` is
// scratch memory.
void add_scores(const DecodeLogits& logits, Index row, double tau,
                const std::vector<std::int32_t>& kept, AlignedDoubles& e,
                std::vector<double>& totals) {
  const std::size_t count = kept.size();
  const std::size_t padded = (count + Lanes::kCount - 1) / Lanes::kCount * Lanes::kCount;
  e.resize(kHeadsAbreast * padded);  // places of heads that are fewer hold earlier numbers
  const std::size_t heads = logits.sinks.size();
  for (std::size_t first = 0; first < heads; first += kHeadsAbreast) {
    const std::size_t some = std::min<std::size_t>(kHeadsAbreast, heads - first);
    double sums[kHeadsAbreast];
    double of_sinks[kHeadsAbreast];
    for (std::size_t h = 0; h < some; ++h) {
      const double* x = logits.heads[first + h].data() + row * logits.stride;
      const double sink = logits.sinks[first + h] / tau;
      double* const to = e.data() + h * padded;
      for (std::size_t p = 0; p < count; ++p) to[p] = x[kept[p]];
      if (tau != 1.0) {
        for (std::size_t p = 0; p < count; ++p) to[p] /= tau;
      }
      std::fill(to + count, to + padded, kNoSink);
      Lanes most = Lanes::all(sink);
      for (std::size_t p = 0; p < padded; p += Lanes::kCount) {
        most = Lanes::max(Lanes::load(to + p), most);
      }
      const double largest = most.largest();
      for (std::size_t p = 0; p < padded; p += Lanes::kCount) {
        canonical_exp(Lanes::load(to + p) - Lanes::all(largest)).store(to + p);
      }
      of_sinks[h] = canonical_exp(sink - largest);
    }
    ascending_sums(e.data(), padded, count, sums);  // those beyond `some` are of no use
    for (std::size_t h = 0; h < some; ++h) {
      const double sum = sums[h] + of_sinks[h];
      const double* const from = e.data() + h * padded;
      for (std::size_t p = 0; p < count; ++p) totals[p] += from[p] / sum;
    }
  }
}

// Rows whose logits take no more than `bytes`, at least one; `kept`: tokens before the first row.
Index rows_within(double bytes, Index heads, Index kept) {
  const double numbers = bytes / sizeof(double) / static_cast<double>(std::max<Index>(heads, 1));
  const double half = kept / 2.0;  // r (kept + r) <= numbers
  return std::max<Index>(1, static_cast<Index>(std::sqrt(half * half + numbers) - half));
}

}  // namespace

ModelTrace trace_prompt(const ModelContext& context, const Scoring& scoring, Index budget,
                        Index recent, std::uint32_t seed) {
  return {
      kept_of_prompt(prompt_pass(context, scoring, budget, seed), context.prompt, budget, recent),
      {}};
}

ModelTrace trace_model(const ModelContext& context, const Scoring& scoring, Index budget,
                       Index recent, std::uint32_t seed, double logit_bytes) {
  const Index prompt = context.prompt;
  const PromptPass pass = prompt_pass(context, scoring, budget, seed);
  ModelTrace trace;
  trace.prompt_kept = kept_of_prompt(pass, prompt, budget, recent);

  std::vector<Index> tokens = trace.prompt_kept;  // kept
  std::vector<double> f;
  for (const Index token : tokens) f.push_back(pass.totals[token]);
  DecodeLogits logits;
  AlignedDoubles e;
  std::vector<double> scores;
  Index rows = 0;
  for (Index first = prompt; first < context.tokens; first += rows) {
    // Rows that are computed together need the logits of their own tokens too.
    const Index most = context.in_memory ? kRowsInMemory : std::max(kMinRows, std::ssize(tokens));
    rows = std::min(
        {rows_within(logit_bytes, pass.heads, std::ssize(tokens)), most, context.tokens - first});
    decode_logits(context, scoring, seed, tokens, first, first + rows, logits);
    std::vector<std::int32_t> kept(tokens.size());  // columns
    std::iota(kept.begin(), kept.end(), 0);
    for (Index r = 0; r < rows; ++r) {
      throw_if_stopped();
      const Index row = first + r;
      kept.push_back(static_cast<std::int32_t>(std::ssize(tokens) + r));
      f.push_back(0.0);
      const Index lo = pass.shape.first_visible(row);
      std::size_t left = 0;
      while (logits.columns[kept[left]] < lo) ++left;
      kept.erase(kept.begin(), kept.begin() + left);
      f.erase(f.begin(), f.begin() + left);
      scores.assign(kept.size(), 0.0);
      const double tau = scoring.tau_init + (row - prompt + 1) * scoring.tau_step;
      add_scores(logits, r, tau, kept, e, scores);
      for (std::size_t p = 0; p < f.size(); ++p) {
        f[p] = std::fma(scoring.decay, f[p], scoring.gain * scores[p]);
      }
      Index evicted = -1;
      if (std::ssize(kept) > budget) {
        const auto may_go = std::partition_point(
            kept.begin(), kept.end(),
            [&](std::int32_t column) { return logits.columns[column] <= row - recent; });
        if (may_go != kept.begin()) {
          const Index lowest = last_lowest(f.data(), may_go - kept.begin());
          evicted = logits.columns[kept[lowest]];
          kept.erase(kept.begin() + lowest);
          f.erase(f.begin() + lowest);
        }
      }
      trace.evicted.push_back(evicted);
    }
    std::vector<Index> still;
    for (const std::int32_t c : kept) still.push_back(logits.columns[c]);
    tokens = std::move(still);
  }
  return trace;
}

double trace_bytes(const ScopeSize& size, Index budget, double logit_bytes) {
  const Index heads = size.heads();
  const Index rows = size.tokens - size.prompt;
  // Logits and exponentials of some rows of one stream, and its keys as a kernel lays them out.
  const Index at_once = std::min(kRowsAtOnce, rows) * size.heads_per_kv;
  const double block = 8.0 * (size.tokens * (2 * at_once + size.d));
  const double of_all = sizeof(double) * static_cast<double>(heads) * rows * (rows + budget);
  const double of_one = sizeof(double) * static_cast<double>(heads) * budget;
  return std::min(of_all, std::max(logit_bytes, of_one)) + block;
}

TraceFollower::TraceFollower(const CellContext& context, const ModelTrace& trace,
                             Index numbers_per_head, Derived derived)
    : context_(context),
      trace_(trace),
      numbers_per_token_(numbers_per_head * context.stream.shape.heads_per_kv),
      derived_(std::move(derived)) {}

void TraceFollower::finish_prompt() {
  for (const Index token : trace_.prompt_kept) sketch_.add(SketchRow::exact(token));
  count_scores();
}

void TraceFollower::extend(Index first, Index last) {
  if (last <= context_.prompt) return;
  for (Index row = first; row < last; ++row) {
    // The token that the row before this one evicted is gone by now.
    const Index before = row - context_.prompt - 1;
    const Index gone = before >= 0 ? trace_.evicted[before] : -1;
    for (Index p = 0; gone >= 0 && p < sketch_.size(); ++p) {
      if (sketch_[p].token == gone) {
        sketch_.erase(p);
        break;
      }
    }
    sketch_.add(SketchRow::exact(row));
    const Index lo = context_.stream.shape.first_visible(row);
    Index left = 0;
    while (sketch_[left].token < lo) ++left;
    sketch_.erase(0, left);
  }
  count_scores();
}

void TraceFollower::count_scores() { sketch_.bookkeeping = sketch_.size() * numbers_per_token_; }

}  // namespace kvbench
