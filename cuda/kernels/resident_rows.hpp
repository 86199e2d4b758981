// Kernels::make_rows_resident on a device: exponentials of some rows, kept there, and answers from
// them. The weights of tokens go to the device, what questions share only once; sums come back.
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

// Questions [first, first + count) of a launch, which begin at the same weight.
struct AnswerGroup {
  static constexpr int kMax = 8;

  Index first = 0;
  Index count = 0;
};

// A block per group and 128 dimensions, which reads a value once for all of its questions; and one
// more (y = 0) for their masses.
struct AnswerFromRows {
  static constexpr int kThreads = 128;
  static constexpr int kMax = AnswerGroup::kMax;
  static constexpr int kEntries = 256;  // in shared memory at a time
  static constexpr int kAhead = 8;      // values that a thread fetches at a time
  static constexpr int kLanes = 8;      // as Lanes sums

  const double* exps = nullptr;  // [queries, columns] of tokens from first_token on
  Index first_token = 0;
  Index columns = 0;
  const double* values = nullptr;  // [n, dv]
  Index dv = 0;
  const AnswerGroup* groups = nullptr;
  const AnswerBatch::Question* questions = nullptr;
  const WeightEntry* weights = nullptr;
  double* numerators = nullptr;    // [questions, dv]
  AnswerMasses* masses = nullptr;  // [questions]

  struct Shared {
    double of[kMax][kEntries];  // exponentials, or what they weigh in the numerator
    WeightEntry weights[kEntries];
    double sums[kMax][4][kLanes];
    double largest[kMax][kLanes];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    if (block.y == 0) {
      add_masses(block, shared, groups[block.x]);
    } else {
      add_values(block, shared, groups[block.x], (block.y - 1) * kThreads);
    }
  }

 private:
  KVBENCH_DEVICE double exponential(const AnswerBatch::Question& question, Index token) const {
    const Index column = token - first_token;
    return column >= 0 && column < columns ? exps[question.query_index * columns + column] : 0.0;
  }

  KVBENCH_DEVICE Index longest(const AnswerGroup& group) const {
    Index most = 0;
    for (Index q = 0; q < group.count; ++q) most = larger(most, questions[group.first + q].weights);
    return most;
  }

  // Calls add(count) for every kEntries weights of the group: `shared` holds them, and make(weight,
  // e) for each question, 0 if a question has fewer.
  template <Block B, class Make, class Add>
  KVBENCH_DEVICE void each_part(B& block, Shared& shared, const AnswerGroup& group,
                                const Make& make, const Add& add) const {
    const Index end = longest(group);
    const Index first_weight = questions[group.first].first_weight;
    for (Index start = 0; start < end; start += kEntries) {
      const Index count = smaller(kEntries, end - start);
      block.each(count, [&](Index i) {
        const WeightEntry weight = weights[first_weight + start + i];
        shared.weights[i] = weight;
        for (int q = 0; q < kMax; ++q) {
          shared.of[q][i] = 0.0;
          if (q >= group.count) continue;
          const AnswerBatch::Question& question = questions[group.first + q];
          if (start + i >= question.weights) continue;
          shared.of[q][i] = make(weight, exponential(question, weight.token));
        }
      });
      add(count);
    }
  }

  template <Block B>
  KVBENCH_DEVICE void add_values(B& block, Shared& shared, const AnswerGroup& group,
                                 Index column) const {
    struct Sums {
      double of[kMax];
    };
    typename B::template Own<Sums> sums(block);
    block.threads([&](int t) {
      KVBENCH_UNROLL
      for (int q = 0; q < kMax; ++q) sums[t].of[q] = 0.0;
    });
    each_part(
        block, shared, group, [](const WeightEntry& weight, double e) { return weight.num * e; },
        [&](Index count) {
          block.threads([&](int t) {
            if (column + t >= dv) return;
            const double* v = values + column + t;
            for (Index i = 0; i < count; i += kAhead) {
              double value[kAhead];  // all asked for before the first is waited for
              KVBENCH_UNROLL
              for (int a = 0; a < kAhead; ++a) {
                value[a] = i + a < count ? v[shared.weights[i + a].token * dv] : 0.0;
              }
              KVBENCH_UNROLL
              for (int a = 0; a < kAhead; ++a) {
                if (i + a >= count) break;
                KVBENCH_UNROLL
                for (int q = 0; q < kMax; ++q) {
                  sums[t].of[q] = fused(shared.of[q][i + a], value[a], sums[t].of[q]);
                }
              }
            }
          });
        });
    block.threads([&](int t) {
      if (column + t >= dv) return;
      KVBENCH_UNROLL
      for (int q = 0; q < kMax; ++q) {
        if (q < group.count) numerators[(group.first + q) * dv + column + t] = sums[t].of[q];
      }
    });
  }

  // Thread 32 q + 8 s + l adds tokens l, l + 8, .. to sum s of questions q and q + 4.
  template <Block B>
  KVBENCH_DEVICE void add_masses(B& block, Shared& shared, const AnswerGroup& group) const {
    constexpr int kApart = kThreads / (4 * kLanes);
    static_assert(kMax == 2 * kApart);
    struct Sums {
      double of[2];
      double largest[2];
    };
    typename B::template Own<Sums> sums(block);
    block.threads([&](int t) { sums[t] = {{0.0, 0.0}, {0.0, 0.0}}; });
    each_part(
        block, shared, group, [](const WeightEntry&, double e) { return e; },
        [&](Index count) {
          block.threads([&](int t) {
            const int question = t / (4 * kLanes);
            const int which = t / kLanes % 4;
            for (Index i = 0; i < count; ++i) {
              const WeightEntry& weight = shared.weights[i];
              if (weight.token % kLanes != t % kLanes) continue;
              const double w = which == 0   ? weight.num
                               : which == 1 ? weight.den
                               : which == 2 ? weight.log
                                            : static_cast<double>(weight.kept);
              KVBENCH_UNROLL
              for (int half = 0; half < 2; ++half) {
                const double e = shared.of[question + half * kApart][i];
                sums[t].of[half] = fused(w, e, sums[t].of[half]);
                sums[t].largest[half] =
                    w * e > sums[t].largest[half] ? w * e : sums[t].largest[half];
              }
            }
          });
        });
    block.threads([&](int t) {
      const int which = t / kLanes % 4;
      KVBENCH_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int question = t / (4 * kLanes) + half * kApart;
        shared.sums[question][which][t % kLanes] = sums[t].of[half];
        if (which == 1) shared.largest[question][t % kLanes] = sums[t].largest[half];
      }
    });
    block.each(group.count, [&](Index q) {
      const auto total = [&](int s) {
        const double* x = shared.sums[q][s];
        return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
      };
      double largest = 0.0;
      for (const double x : shared.largest[q]) largest = x > largest ? x : largest;
      masses[group.first + q] = {{total(0), total(1), total(2), total(3)}, largest};
    });
  }
};

// `make()` gives a machine for a call; `memory` holds the exponentials.
template <MachineFactory Make, class Memory>
class DeviceRows final : public ResidentRows {
 public:
  DeviceRows(const Stream& stream, const LogitRoom& room, Memory memory,
             std::vector<double> max_logit, Make make)
      : ResidentRows(std::move(max_logit)),
        values_(stream.values),
        room_(room),
        memory_(std::move(memory)),
        make_(std::move(make)) {}

  bool is_enough(const AnswerBatch& batch) const override {
    return static_cast<Index>(batch.questions.size()) >= kEnoughQuestions ||
           batch.weights.size() >= kEnoughWeights;
  }
  void answer(const AnswerBatch& batch, std::vector<double>& numerators,
              std::vector<AnswerMasses>& masses) const override {
    numerators.resize(batch.questions.size() * static_cast<std::size_t>(values_.cols));
    masses.resize(batch.questions.size());
    if (batch.questions.empty()) return;
    auto machine = make_();
    compute(machine, batch, numerators.data(), masses.data());
  }

 private:
  // 32 MB to be copied to the device.
  static constexpr Index kEnoughQuestions = 4096;
  static constexpr std::size_t kEnoughWeights = std::size_t{1} << 20;

  // Neighbours that begin at the same weight, of questions [0, count).
  static void group(const AnswerBatch::Question* questions, Index count,
                    std::vector<AnswerGroup>& groups) {
    groups.clear();
    for (Index q = 0; q < count; ++q) {
      const bool joins = !groups.empty() && groups.back().count < AnswerGroup::kMax &&
                         questions[groups.back().first].first_weight == questions[q].first_weight;
      if (!joins) groups.push_back({q, 0});
      ++groups.back().count;
    }
  }

  template <Machine M>
  void compute(M& machine, const AnswerBatch& batch, double* numerators,
               AnswerMasses* masses) const {
    const Index dv = values_.cols;
    const auto count = static_cast<Index>(batch.questions.size());
    const auto weight_count = static_cast<Index>(batch.weights.size());
    DeviceMatrix values(machine, values_);
    const auto room = machine.reserve(
        {.what = "answers",
         .fixed_bytes = values.bytes() + weight_count * static_cast<Index>(sizeof(WeightEntry)),
         .row_bytes =
             bytes_of_doubles(dv) + static_cast<Index>(sizeof(AnswerBatch::Question) +
                                                       sizeof(AnswerGroup) + sizeof(AnswerMasses)),
         .rows = count});
    AnswerFromRows body;
    body.exps = room_.exps;
    body.first_token = room_.first_token;
    body.columns = room_.columns;
    body.values = values.bring();
    body.dv = dv;
    auto weights = machine.template allocate<WeightEntry>(weight_count);
    auto questions = machine.template allocate<AnswerBatch::Question>(room.rows());
    auto groups = machine.template allocate<AnswerGroup>(room.rows());
    auto sums = machine.template allocate<double>(room.rows() * dv);
    auto all_masses = machine.template allocate<AnswerMasses>(room.rows());
    body.weights = weights.data();
    body.questions = questions.data();
    body.groups = groups.data();
    body.numerators = sums.data();
    body.masses = all_masses.data();
    machine.upload(weights.data(), batch.weights.data(), weight_count);
    std::vector<AnswerGroup> neighbours;
    for (Index first = 0; first < count; first += room.rows()) {
      const Index some = smaller(room.rows(), count - first);
      group(batch.questions.data() + first, some, neighbours);
      const auto blocks = static_cast<Index>(neighbours.size());
      machine.upload(questions.data(), batch.questions.data() + first, some);
      machine.upload(groups.data(), neighbours.data(), blocks);
      machine.launch(body, {.x = blocks, .y = 1 + blocks_of(AnswerFromRows::kThreads, dv)});
      machine.download(numerators + first * dv, sums.data(), some * dv);
      machine.download(masses + first, all_masses.data(), some);
    }
  }

  const ConstMatrix values_;
  const LogitRoom room_;
  const Memory memory_;
  const Make make_;
};

// The resident rows; null if the exponentials find no room.
template <MachineFactory Make>
std::shared_ptr<const ResidentRows> make_rows_resident(const Make& make, const Stream& stream,
                                                       const std::vector<Index>& rows) {
  if (rows.empty()) return nullptr;
  auto machine = make();
  const StreamShape& shape = stream.shape;
  const Index heads_per_kv = shape.heads_per_kv;
  const auto count = static_cast<Index>(rows.size());
  LogitRoom resident;
  resident.first_token = shape.first_visible(rows.front());
  resident.columns = rows.back() + 1 - resident.first_token;
  auto memory = machine.template allocate_resident<double>(count * heads_per_kv * resident.columns);
  if (!memory) return nullptr;
  resident.exps = memory->data();

  using Rows = DeviceStream<decltype(machine)>;
  DeviceMatrix keys(machine, first_rows(stream.keys, rows.back() + 1));
  const auto room = machine.reserve(
      {.what = "logits",
       .fixed_bytes = keys.bytes(),
       .row_bytes = Rows::row_bytes(shape) + heads_per_kv * bytes_of_doubles(resident.columns + 1),
       .rows = smaller(count, most_logit_rows(heads_per_kv))});
  Rows device(machine, stream, keys.bring(), room.rows());
  auto x = machine.template allocate<double>(room.rows() * heads_per_kv * resident.columns);
  auto m = machine.template allocate<double>(room.rows() * heads_per_kv);
  std::vector<double> max_logit(static_cast<std::size_t>(count * heads_per_kv));
  for (Index first = 0; first < count; first += room.rows()) {
    const Index batch = smaller(room.rows(), count - first);
    const StreamView view = device.at(rows.data() + first, batch);
    const Index at = first * heads_per_kv;
    fill_logits(machine, view,
                {resident.first_token, resident.columns, x.data(),
                 resident.exps + at * resident.columns, m.data()});
    machine.download(max_logit.data() + at, m.data(), view.query_count);
  }
  machine.wait();
  using Memory = typename decltype(memory)::value_type;
  return std::make_shared<DeviceRows<Make, Memory>>(stream, resident, std::move(*memory),
                                                    std::move(max_logit), make);
}

}  // namespace kvbench::cuda
