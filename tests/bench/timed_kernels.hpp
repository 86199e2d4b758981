// A kernel table that knows how long its calls took.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"
#include "support/wrapped_kernels.hpp"

namespace kvbench::bench {

// Calls of `kernels`, which must outlive this and all that its calls return. Safe from several
// threads.
class TimedKernels final : public test::WrappedKernels {
 public:
  struct Calls {
    int count = 0;
    double seconds = 0.0;  // over all threads
  };

  using WrappedKernels::WrappedKernels;

  // By the entry's name, since the last reset().
  std::map<std::string, Calls> calls() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }
  void reset() {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.clear();
  }

  std::shared_ptr<const ResidentRows> make_rows_resident(
      const Stream& stream, const std::vector<Index>& rows) const override {
    auto kept = WrappedKernels::make_rows_resident(stream, rows);
    if (!kept) return nullptr;
    return std::make_shared<TimedRows>(*this, std::move(kept));
  }
  std::unique_ptr<WeightedValues> weighted_values(ConstMatrix values) const override {
    return std::make_unique<TimedValues>(*this, WrappedKernels::weighted_values(values));
  }

 private:
  class TimedRows final : public ResidentRows {
   public:
    TimedRows(const TimedKernels& timed, std::shared_ptr<const ResidentRows> rows)
        : ResidentRows(rows->max_logit()), timed_(timed), rows_(std::move(rows)) {}
    bool is_enough(const AnswerBatch& batch) const override { return rows_->is_enough(batch); }
    void answer(const AnswerBatch& batch, std::vector<double>& numerators,
                std::vector<AnswerMasses>& masses) const override {
      timed_.around("held rows: answer", [&] { rows_->answer(batch, numerators, masses); });
    }

   private:
    const TimedKernels& timed_;
    std::shared_ptr<const ResidentRows> rows_;
  };

  class TimedValues final : public WeightedValues {
   public:
    TimedValues(const TimedKernels& timed, std::unique_ptr<WeightedValues> values)
        : timed_(timed), values_(std::move(values)) {}
    double* ask(const std::vector<std::int32_t>& tokens) override { return values_->ask(tokens); }
    Index questions() const override { return values_->questions(); }
    bool full() const override { return values_->full(); }
    void sums(std::vector<double>& out) override {
      timed_.around("weighted values: sums", [&] { values_->sums(out); });
    }

   private:
    const TimedKernels& timed_;
    std::unique_ptr<WeightedValues> values_;
  };

  void around(const char* name, const std::function<void()>& call) const override {
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
    call();
  }

  mutable std::mutex mutex_;
  mutable std::map<std::string, Calls> calls_;
};

}  // namespace kvbench::bench
