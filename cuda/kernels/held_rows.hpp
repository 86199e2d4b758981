// Kernels::hold_rows on a device: exponentials of some rows, kept there, and answers from them. The
// weights of tokens go to the device, once for all query heads and rows that share them; sums come
// back.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/kernels/device_stream.hpp"
#include "cuda/kernels/logits.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

// weights[first, first + count) at place `place`.
struct AnswerQuestion {
  Index place = 0;
  Index first = 0;
  Index count = 0;
};

// A block per question and 128 dimensions, and one more (y = 0) for its masses.
struct AnswerFromRows {
  static constexpr int kThreads = 128;
  static constexpr int kEntries = 256;  // in shared memory at a time
  static constexpr int kLanes = 8;      // as Lanes sums

  const double* exps = nullptr;  // [places, columns] of tokens from first_token on
  Index first_token = 0;
  Index columns = 0;
  const double* values = nullptr;  // [n, dv]
  Index dv = 0;
  const AnswerQuestion* questions = nullptr;
  const TokenWeight* weights = nullptr;
  double* numerators = nullptr;    // [questions, dv]
  AnswerMasses* masses = nullptr;  // [questions]

  struct Shared {
    double e[kEntries];
    double c[kEntries];
    std::int32_t tokens[kEntries];
    TokenWeight weights[kEntries];
    double sums[4][kLanes];
    double largest[kThreads];
  };

  template <class Block>
  KVBENCH_DEVICE void operator()(Block& block, Shared& shared) const {
    const AnswerQuestion question = questions[block.x];
    if (block.y == 0) {
      add_masses(block, shared, question);
    } else {
      add_values(block, shared, question, (block.y - 1) * kThreads);
    }
  }

 private:
  KVBENCH_DEVICE double exponential(const AnswerQuestion& question, Index token) const {
    const Index column = token - first_token;
    return column >= 0 && column < columns ? exps[question.place * columns + column] : 0.0;
  }

  template <class Block>
  KVBENCH_DEVICE void add_values(Block& block, Shared& shared, const AnswerQuestion& question,
                                 Index column) const {
    typename Block::template Own<double> sum(block);
    block.threads([&](int t) { sum[t] = 0.0; });
    for (Index start = 0; start < question.count; start += kEntries) {
      const Index count = smaller(kEntries, question.count - start);
      block.each(count, [&](Index i) {
        const TokenWeight& weight = weights[question.first + start + i];
        shared.tokens[i] = weight.token;
        shared.c[i] = weight.num * exponential(question, weight.token);
      });
      block.threads([&](int t) {
        if (column + t >= dv) return;
        const double* v = values + column + t;
        for (Index i = 0; i < count; ++i) {
          if (shared.c[i] == 0.0) continue;
          sum[t] = scalar::fused(shared.c[i], v[shared.tokens[i] * dv], sum[t]);
        }
      });
    }
    block.threads([&](int t) {
      if (column + t < dv) numerators[block.x * dv + column + t] = sum[t];
    });
  }

  // Thread 8 s + l adds tokens l, l + 8, .. to sum s.
  template <class Block>
  KVBENCH_DEVICE void add_masses(Block& block, Shared& shared,
                                 const AnswerQuestion& question) const {
    typename Block::template Own<double> sum(block);
    typename Block::template Own<double> largest(block);
    block.threads([&](int t) { sum[t] = largest[t] = 0.0; });
    for (Index start = 0; start < question.count; start += kEntries) {
      const Index count = smaller(kEntries, question.count - start);
      block.each(count, [&](Index i) {
        shared.weights[i] = weights[question.first + start + i];
        shared.e[i] = exponential(question, shared.weights[i].token);
      });
      block.threads([&](int t) {
        for (Index i = t; i < count; i += kThreads) {
          const double x = shared.weights[i].den * shared.e[i];
          largest[t] = x > largest[t] ? x : largest[t];
        }
        if (t >= 4 * kLanes) return;
        for (Index i = 0; i < count; ++i) {
          const TokenWeight& weight = shared.weights[i];
          if (weight.token % kLanes != t % kLanes) continue;
          const double w = t < kLanes       ? weight.num
                           : t < 2 * kLanes ? weight.den
                           : t < 3 * kLanes ? weight.log
                                            : static_cast<double>(weight.held);
          sum[t] = scalar::fused(w, shared.e[i], sum[t]);
        }
      });
    }
    block.threads([&](int t) {
      shared.largest[t] = largest[t];
      if (t < 4 * kLanes) shared.sums[t / kLanes][t % kLanes] = sum[t];
    });
    gather_largest(block, shared.largest);
    block.threads([&](int t) {
      if (t != 0) return;
      const auto total = [&](int s) {
        const double* x = shared.sums[s];
        return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
      };
      masses[block.x] = {total(0), total(1), total(2), total(3), shared.largest[0]};
    });
  }
};

// `make()` gives a machine for a call; `memory` holds the exponentials.
template <class MakeMachine, class Memory>
class DeviceRows final : public HeldRows {
 public:
  DeviceRows(const Stream& stream, const LogitRoom& room, Memory memory,
             std::vector<double> max_logit, MakeMachine make)
      : HeldRows(std::move(max_logit)),
        values_(stream.values),
        room_(room),
        memory_(std::move(memory)),
        make_(std::move(make)) {}

  void answer(const AnswerBatch& batch, std::vector<double>& numerators,
              std::vector<AnswerMasses>& masses) const override {
    numerators.resize(batch.places.size() * static_cast<std::size_t>(values_.cols));
    masses.resize(batch.places.size());
    if (batch.places.empty()) return;
    auto machine = make_();
    compute(machine, batch, numerators.data(), masses.data());
  }

 private:
  // Lists that are answered in one launch, and what they need.
  template <class Machine>
  void compute(Machine& machine, const AnswerBatch& batch, double* numerators,
               AnswerMasses* masses) const {
    Index most_weights = 0;
    Index most_questions = 0;
    for (const AnswerBatch::List& list : batch.lists) {
      most_weights = larger(most_weights, list.weights);
      most_questions = larger(most_questions, list.questions);
    }
    const Index dv = values_.cols;
    constexpr auto kQuestionBytes =
        static_cast<Index>(sizeof(AnswerQuestion) + sizeof(AnswerMasses));
    DeviceMatrix values(machine, values_);
    const auto lists = static_cast<Index>(batch.lists.size());
    const auto room =
        machine.reserve({.what = "answers",
                         .fixed_bytes = values.bytes(),
                         .row_bytes = most_weights * static_cast<Index>(sizeof(TokenWeight)) +
                                      most_questions * (bytes_of_doubles(dv) + kQuestionBytes),
                         .rows = lists});
    const Index questions_at_once = room.rows() * most_questions;
    AnswerFromRows body;
    body.exps = room_.exps;
    body.first_token = room_.first_token;
    body.columns = room_.columns;
    body.values = values.bring();
    body.dv = dv;
    auto asked = machine.template allocate<AnswerQuestion>(questions_at_once);
    auto weights = machine.template allocate<TokenWeight>(room.rows() * most_weights);
    auto sums = machine.template allocate<double>(questions_at_once * dv);
    auto all_masses = machine.template allocate<AnswerMasses>(questions_at_once);
    body.questions = asked.data();
    body.weights = weights.data();
    body.numerators = sums.data();
    body.masses = all_masses.data();
    std::vector<AnswerQuestion> questions;
    for (Index first = 0; first < lists; first += room.rows()) {
      const auto begin = batch.lists.begin() + first;
      const auto end = begin + smaller(room.rows(), lists - first);
      const Index first_weight = begin->first_weight;
      const Index first_question = begin->first_question;
      questions.clear();
      for (auto list = begin; list != end; ++list) {
        for (Index q = list->first_question; q < list->first_question + list->questions; ++q) {
          questions.push_back({batch.places[static_cast<std::size_t>(q)],
                               list->first_weight - first_weight, list->weights});
        }
      }
      const AnswerBatch::List& last = *(end - 1);
      const auto count = static_cast<Index>(questions.size());
      machine.upload(asked.data(), questions.data(), count);
      machine.upload(weights.data(), batch.weights.data() + first_weight,
                     last.first_weight + last.weights - first_weight);
      machine.launch(body, {.x = count, .y = 1 + blocks_of(AnswerFromRows::kThreads, dv)});
      machine.download(numerators + first_question * dv, sums.data(), count * dv);
      machine.download(masses + first_question, all_masses.data(), count);
    }
  }

  const ConstMatrix values_;
  const LogitRoom room_;
  const Memory memory_;
  const MakeMachine make_;
};

// Null where the exponentials find no room.
template <class MakeMachine>
std::shared_ptr<const HeldRows> hold_rows(const MakeMachine& make, const Stream& stream,
                                          const std::vector<Index>& rows) {
  if (rows.empty()) return nullptr;
  auto machine = make();
  using Machine = decltype(machine);
  const StreamShape& shape = stream.shape;
  const Index group = shape.group;
  const auto count = static_cast<Index>(rows.size());
  LogitRoom held;
  held.first_token = shape.first_visible(rows.front());
  held.columns = rows.back() + 1 - held.first_token;
  auto memory = machine.template hold<double>(count * group * held.columns);
  if (!memory) return nullptr;
  held.exps = memory->data();

  using Rows = DeviceStream<Machine>;
  DeviceMatrix keys(machine, first_rows(stream.keys, rows.back() + 1));
  const auto room = machine.reserve(
      {.what = "logits",
       .fixed_bytes = keys.bytes(),
       .row_bytes = Rows::row_bytes(shape) + group * bytes_of_doubles(held.columns + 1),
       .rows = smaller(count, most_logit_rows(group))});
  Rows device(machine, stream, keys.bring(), room.rows());
  auto x = machine.template allocate<double>(room.rows() * group * held.columns);
  auto m = machine.template allocate<double>(room.rows() * group);
  std::vector<double> max_logit(static_cast<std::size_t>(count * group));
  for (Index first = 0; first < count; first += room.rows()) {
    const Index batch = smaller(room.rows(), count - first);
    const StreamView view = device.at(rows.data() + first, batch);
    const Index at = first * group;
    fill_logits(
        machine, view,
        {held.first_token, held.columns, x.data(), held.exps + at * held.columns, m.data()});
    machine.download(max_logit.data() + at, m.data(), view.places);
  }
  machine.wait();
  using Memory = typename decltype(memory)::value_type;
  return std::make_shared<DeviceRows<MakeMachine, Memory>>(stream, held, std::move(*memory),
                                                           std::move(max_logit), make);
}

}  // namespace kvbench::cuda
