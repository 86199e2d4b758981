// A kernel table that knows how long its calls took.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench::bench {

// Calls of `kernels`, which must outlive this and all that its calls return. Safe from several
// threads.
class TimedKernels final : public Kernels {
 public:
  struct Calls {
    int count = 0;
    double seconds = 0.0;  // over all threads
  };

  explicit TimedKernels(const Kernels& kernels) : kernels_(kernels) {}

  // By the entry's name, since the last reset().
  std::map<std::string, Calls> calls() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }
  void reset() {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.clear();
  }

  std::string device() const override { return kernels_.device(); }
  std::shared_ptr<const void> hold(const Stream& stream) const override {
    return timed("hold", [&] { return kernels_.hold(stream); });
  }
  ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const override {
    return timed("exact_attention",
                 [&] { return kernels_.exact_attention(stream, std::move(rows)); });
  }
  void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const override {
    timed("logits", [&] { kernels_.logits(stream, std::move(rows), out); });
  }
  std::shared_ptr<const HeldRows> hold_rows(const Stream& stream,
                                            const std::vector<Index>& rows) const override {
    auto held = timed("hold_rows", [&] { return kernels_.hold_rows(stream, rows); });
    if (!held) return nullptr;
    return std::make_shared<TimedRows>(*this, std::move(held));
  }
  std::vector<ScoreSums> score_sums_by(const Stream& stream, Index first, Index last,
                                       const std::vector<ScoreRule>& rules) const override {
    return timed("score_sums_by",
                 [&] { return kernels_.score_sums_by(stream, first, last, rules); });
  }
  Clustering cluster(ConstMatrix points, Index first, double delta) const override {
    return timed("cluster", [&] { return kernels_.cluster(points, first, delta); });
  }
  Centers farthest_first(ConstMatrix points, Index first, Index last, Index start,
                         Index count) const override {
    return timed("farthest_first",
                 [&] { return kernels_.farthest_first(points, first, last, start, count); });
  }
  void value_norms(const Stream& stream, const std::vector<Index>& rows,
                   std::vector<double>& spectral, std::vector<double>& frobenius) const override {
    timed("value_norms", [&] { kernels_.value_norms(stream, rows, spectral, frobenius); });
  }
  std::shared_ptr<const WalkMatrices> walk_matrices(const std::vector<Index>& sizes,
                                                    const WalkSource& tokens) const override {
    return timed("walk_matrices", [&] { return kernels_.walk_matrices(sizes, tokens); });
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkMatrices& matrices,
      const std::vector<std::vector<double>>& uniforms) const override {
    return timed("balance_walks, held",
                 [&] { return kernels_.balance_walks(rule, matrices, uniforms); });
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkSource& tokens,
      const std::vector<std::vector<double>>& uniforms) const override {
    return timed("balance_walks, tokens",
                 [&] { return kernels_.balance_walks(rule, tokens, uniforms); });
  }
  std::unique_ptr<WeightedValues> weighted_values(ConstMatrix values) const override {
    return std::make_unique<TimedValues>(
        *this, timed("weighted_values", [&] { return kernels_.weighted_values(values); }));
  }

 private:
  class TimedRows final : public HeldRows {
   public:
    TimedRows(const TimedKernels& timed, std::shared_ptr<const HeldRows> rows)
        : HeldRows(rows->max_logit()), timed_(timed), rows_(std::move(rows)) {}
    void answer(const AnswerBatch& batch, std::vector<double>& numerators,
                std::vector<AnswerMasses>& masses) const override {
      timed_.timed("held rows: answer", [&] { rows_->answer(batch, numerators, masses); });
    }

   private:
    const TimedKernels& timed_;
    std::shared_ptr<const HeldRows> rows_;
  };

  class TimedValues final : public WeightedValues {
   public:
    TimedValues(const TimedKernels& timed, std::unique_ptr<WeightedValues> values)
        : timed_(timed), values_(std::move(values)) {}
    double* ask(const std::vector<std::int32_t>& tokens) override { return values_->ask(tokens); }
    Index questions() const override { return values_->questions(); }
    bool full() const override { return values_->full(); }
    void sums(std::vector<double>& out) override {
      timed_.timed("weighted values: sums", [&] { values_->sums(out); });
    }

   private:
    const TimedKernels& timed_;
    std::unique_ptr<WeightedValues> values_;
  };

  template <class Call>
  std::invoke_result_t<Call> timed(const char* name, const Call& call) const {
    struct Watch {
      const TimedKernels& table;
      const char* name;
      std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
      ~Watch() {
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        const std::lock_guard<std::mutex> lock(table.mutex_);
        Calls& calls = table.calls_[name];
        ++calls.count;
        calls.seconds += passed.count();
      }
    };
    const Watch watch{*this, name};
    return call();
  }

  const Kernels& kernels_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Calls> calls_;
};

}  // namespace kvbench::bench
