#include "algorithms/model_scope.hpp"

#include <algorithm>
#include <numeric>

#include "core/canonical.hpp"

namespace kvbench {
namespace {

constexpr Index kRowsAtOnce = 32;

std::vector<double> prompt_totals(const ModelSetting& setting, const Scoring& scoring,
                                  std::uint32_t seed) {
  std::vector<double> totals(static_cast<std::size_t>(setting.tokens), 0.0);
  if (setting.prompt == 0) return totals;
  setting.for_each_stream([&](const Stream& stream) {
    const std::any result =
        prompt_scores(scoring, seed).compute({stream, setting.prompt, setting.kernels});
    for (const std::vector<double>& head : std::any_cast<const PromptScores&>(result)) {
      for (std::size_t j = 0; j < totals.size(); ++j) totals[j] += head[j];
    }
  });
  return totals;
}

// Noisy logits of every decode row and query head of the scope against the tokens that can be held:
// those kept of the prompt, then all decode tokens. [heads][rows][columns].
struct DecodeLogits {
  std::vector<Index> columns;
  std::vector<std::vector<double>> heads;
};

DecodeLogits decode_logits(const ModelSetting& setting, const Scoring& scoring, std::uint32_t seed,
                           const std::vector<Index>& kept) {
  DecodeLogits out;
  out.columns = kept;
  for (Index j = setting.prompt; j < setting.tokens; ++j) out.columns.push_back(j);
  const Index rows = setting.tokens - setting.prompt;
  setting.for_each_stream([&](const Stream& stream) {
    const LogitNoise noise = scoring.noise_on(stream, seed);
    const std::size_t first_head = out.heads.size();
    for (int g = 0; g < stream.shape.group; ++g) out.heads.emplace_back();
    LogitBlock block;
    for (Index first = 0; first < rows; first += kRowsAtOnce) {
      std::vector<Index> chunk(static_cast<std::size_t>(std::min(kRowsAtOnce, rows - first)));
      std::iota(chunk.begin(), chunk.end(), setting.prompt + first);
      setting.kernels.logits(stream, chunk, block);
      for (std::size_t r = 0; r < chunk.size(); ++r) {
        for (int g = 0; g < stream.shape.group; ++g) {
          const Index place = static_cast<Index>(r) * stream.shape.group + g;
          std::vector<double>& head = out.heads[first_head + static_cast<std::size_t>(g)];
          for (const Index token : out.columns) {
            const bool visible = token <= chunk[r];
            head.push_back(
                visible ? block.logits[static_cast<std::size_t>(place * block.tokens + token)] +
                              noise.draw(g, chunk[r], token)
                        : 0.0);
          }
        }
      }
    }
  });
  return out;
}

// Adds every head's scores over the held columns at one row.
void add_scores(const DecodeLogits& logits, Index row, double tau,
                const std::vector<std::size_t>& held, std::vector<double>& totals) {
  const std::size_t columns = logits.columns.size();
  std::vector<double> e(held.size());
  for (const std::vector<double>& head : logits.heads) {
    const double* x = head.data() + static_cast<std::size_t>(row) * columns;
    double largest = x[held.front()] / tau;
    for (const std::size_t c : held) largest = std::max(largest, x[c] / tau);
    double sum = 0.0;
    for (std::size_t p = 0; p < held.size(); ++p) {
      e[p] = canonical_exp(x[held[p]] / tau - largest);
      sum += e[p];
    }
    for (std::size_t p = 0; p < held.size(); ++p) totals[p] += e[p] / sum;
  }
}

}  // namespace

ModelTrace trace_model(const ModelSetting& setting, const Scoring& scoring, Index budget,
                       Index recent, std::uint32_t seed) {
  const Index prompt = setting.prompt;
  const std::vector<double> totals = prompt_totals(setting, scoring, seed);
  ModelTrace trace;
  const Index last = std::min(recent, prompt);
  trace.prompt_kept =
      best_tokens({totals.begin(), totals.begin() + (prompt - last)}, 0, budget - recent);
  for (Index j = prompt - last; j < prompt; ++j) trace.prompt_kept.push_back(j);

  const DecodeLogits logits = decode_logits(setting, scoring, seed, trace.prompt_kept);
  std::vector<std::size_t> held(trace.prompt_kept.size());
  std::iota(held.begin(), held.end(), std::size_t{0});
  std::vector<double> f;
  for (const Index token : trace.prompt_kept) f.push_back(totals[static_cast<std::size_t>(token)]);
  for (Index m = 0; m < setting.tokens - prompt; ++m) {
    const Index row = prompt + m;
    held.push_back(trace.prompt_kept.size() + static_cast<std::size_t>(m));
    f.push_back(0.0);
    std::vector<double> scores(held.size(), 0.0);
    const double tau = scoring.tau_init + static_cast<double>(m + 1) * scoring.tau_step;
    add_scores(logits, m, tau, held, scores);
    for (std::size_t p = 0; p < f.size(); ++p) {
      f[p] = std::fma(scoring.decay, f[p], scoring.gain * scores[p]);
    }
    Index evicted = -1;
    if (static_cast<Index>(held.size()) > budget) {
      std::size_t lowest = held.size();
      for (std::size_t p = 0; p < held.size() && logits.columns[held[p]] <= row - recent; ++p) {
        if (lowest == held.size() || f[p] <= f[lowest]) lowest = p;
      }
      if (lowest < held.size()) {
        evicted = logits.columns[held[lowest]];
        held.erase(held.begin() + static_cast<Index>(lowest));
        f.erase(f.begin() + static_cast<Index>(lowest));
      }
    }
    trace.evicted.push_back(evicted);
  }
  return trace;
}

TraceFollower::TraceFollower(const Setting& setting, const ModelTrace& trace,
                             Index numbers_per_head)
    : setting_(setting),
      trace_(trace),
      numbers_per_token_(numbers_per_head * setting.stream.shape.group) {}

void TraceFollower::finish_prompt() {
  for (const Index token : trace_.prompt_kept) sketch_.add(SketchRow::exact(token));
  count_scores();
}

void TraceFollower::extend(Index first, Index last) {
  if (last <= setting_.prompt) return;
  for (Index row = first; row < last; ++row) {
    // What the row before this one evicted is gone by now.
    const Index before = row - setting_.prompt - 1;
    const Index gone = before >= 0 ? trace_.evicted[static_cast<std::size_t>(before)] : -1;
    for (Index p = 0; gone >= 0 && p < sketch_.size(); ++p) {
      if (sketch_[p].token == gone) {
        sketch_.erase(p);
        break;
      }
    }
    sketch_.add(SketchRow::exact(row));
  }
  count_scores();
}

void TraceFollower::count_scores() { sketch_.bookkeeping = sketch_.size() * numbers_per_token_; }

}  // namespace kvbench
