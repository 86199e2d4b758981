// Kernels::exact_attention on a device: rows in batches, by a few threads of the host if there are
// many.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "cuda/kernels/attention_bodies.hpp"
#include "cuda/kernels/device_stream.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"
#include "system/parallel.hpp"

namespace kvbench::cuda {

// Some neighbouring rows of a call, and where their queries begin among all of the call.
struct AttentionBatch {
  const Index* rows = nullptr;
  Index count = 0;
  Index first_query_index = 0;
};

// run(AttendSpan) for the one that suits vectors of this shape on a device whose blocks can have
// so much shared memory.
template <class Run>
void with_attend_span(const StreamShape& shape, Index shared_bytes, const Run& run) {
  const auto of = [&]<class Tiling, bool kPairs>() {
    if (shape.softcap > 0.0) {
      run(AttendSpan<Tiling, true, kPairs>());
    } else {
      run(AttendSpan<Tiling, false, kPairs>());
    }
  };
  const auto of_slice = [&]<int kSlice>() {
    using Wide = WideAttend<kSlice>;
    constexpr auto kWanted =
        static_cast<Index>(sizeof(typename AttendSpan<Wide, false, true>::Shared));
    if (shape.d <= kSlice && kWanted <= shared_bytes) {
      of.template operator()<Wide, true>();
    } else {
      of.template operator()<NarrowAttend<kSlice>, true>();
    }
  };
  if (shape.d % 2 != 0 || shape.dv % 2 != 0) {
    of.template operator()<NarrowAttend<64>, false>();
  } else if (shape.dv <= 64) {
    of_slice.template operator()<64>();
  } else {
    of_slice.template operator()<128>();
  }
}

// State that the threads of a call share: keys and values on the device, and how the work is cut.
struct AttentionCall {
  const Stream& stream;
  const double* keys = nullptr;
  const double* values = nullptr;
  Index span = 0;   // tokens
  Index spans = 0;  // most of a row
  Index rows = 0;   // that a thread has on the device at a time

  // Bytes of a thread for this many rows.
  template <Machine M>
  static Index doubles(const StreamShape& shape, Index spans, Index rows) {
    return DeviceStream<M>::doubles(shape, rows) +
           rows * shape.heads_per_kv * (spans + 1) * (shape.dv + 3);
  }
};

// Some batches of a call, one after the other, in memory of AttentionCall::doubles. `outputs_of()`
// gives the host's memory of all outputs, and is called when the device is at work.
template <Machine M, class Outputs>
void attend(M& machine, const AttentionCall& call, double* memory,
            const std::vector<AttentionBatch>& batches, const Outputs& outputs_of, ExactRows& out) {
  const StreamShape& shape = call.stream.shape;
  const Index at_once = call.rows * shape.heads_per_kv;
  DeviceStream<M> device(machine, call.stream, call.keys, call.rows, memory);
  double* span_outputs = memory + DeviceStream<M>::doubles(shape, call.rows);
  double* outputs = span_outputs + call.spans * at_once * shape.dv;
  auto* span_sums = reinterpret_cast<SpanSums*>(outputs + at_once * shape.dv);
  SpanSums* sums = span_sums + call.spans * at_once;

  std::vector<SpanSums> joined(static_cast<std::size_t>(at_once));
  for (const AttentionBatch& batch : batches) {
    const StreamView view = device.at(batch.rows, batch.count);
    const Index n = view.query_count;
    const Index spans = blocks_of(call.span, batch.rows[batch.count - 1] + 1);
    const auto launch =
        [&]<class Tiling, bool kCapped, bool kPairs>(AttendSpan<Tiling, kCapped, kPairs> body) {
          body.stream = view;
          if (kCapped) body.inverse_softcap = 1.0 / view.softcap;
          body.values = call.values;
          body.dv = shape.dv;
          body.span = call.span;
          body.sums = span_sums;
          body.outputs = span_outputs;
          machine.launch(body, {.x = blocks_of(Tiling::kQueries, n),
                                .y = larger(1, blocks_of(Tiling::kSlice, shape.dv)),
                                .z = spans});
        };
    with_attend_span(shape, machine.shared_bytes(), launch);
    // The work is urgent: behind the spans of all other threads none would get its next batch in
    // time.
    const auto urgent = machine.urgent();
    JoinSpans join;
    join.query_count = n;
    join.spans = spans;
    join.dv = shape.dv;
    join.sums = span_sums;
    join.span_outputs = span_outputs;
    join.joined = sums;
    join.outputs = outputs;
    machine.launch(join, {.x = n});
    const Index at = batch.first_query_index;
    machine.download(outputs_of() + at * shape.dv, outputs, n * shape.dv);
    machine.download(joined.data(), sums, n);
    for (Index q = 0; q < n; ++q) {
      const auto query_index = static_cast<std::size_t>(at + q);
      const SpanSums& total = joined[static_cast<std::size_t>(q)];
      out.max_logit[query_index] = total.max_logit;
      out.normalizer[query_index] = total.sum;
      out.squared_sum[query_index] = total.squared_sum;
    }
  }
}

// How the work of a call is split. Spans decide bits, batches and workers do not.
struct AttentionSplit {
  Index many_queries = 32768;  // enough to fill the device with long spans
  Index span = 512;            // tokens, of fewer queries; multiples of kAttendTokens
  Index many_span = 2048;      // tokens, of many queries: the last blocks end together
  Index batch_queries = 1024;  // queries of a batch, if there are many
  Index workers = 12;          // threads that take batches
};

// `make()` gives a machine. If keys and values are on the device already, many queries are taken in
// batches by a few threads, so that queries and outputs travel while others are computed.
template <MachineFactory Make>
ExactRows exact_attention(const Make& make, const Stream& stream, std::vector<Index> rows,
                          const AttentionSplit& split = {}) {
  using M = decltype(make());
  const StreamShape& shape = stream.shape;
  ExactRows out;
  out.rows = std::move(rows);
  const Index count = static_cast<Index>(out.rows.size());
  const Index query_count = count * shape.heads_per_kv;
  out.max_logit.resize(static_cast<std::size_t>(query_count));
  out.normalizer.resize(static_cast<std::size_t>(query_count));
  out.squared_sum.resize(static_cast<std::size_t>(query_count));
  if (count == 0) return out;

  auto machine = make();
  const Index tokens = out.rows.back() + 1;
  DeviceMatrix keys(machine, first_rows(stream.keys, tokens));
  DeviceMatrix values(machine, first_rows(stream.values, tokens));
  const Index fixed_bytes = keys.bytes() + values.bytes();
  const bool many = query_count >= split.many_queries;
  AttentionCall call{stream};
  call.span = many ? split.many_span : split.span;
  call.spans = blocks_of(call.span, tokens);
  const Index wanted = many && fixed_bytes == 0
                           ? smaller(count, larger(1, split.batch_queries / shape.heads_per_kv))
                           : count;
  const Index most_workers = smaller(split.workers, blocks_of(wanted, count));
  // One reservation and one allocation: those of several threads wait for each other.
  const auto room = machine.reserve(
      {.what = "exact attention",
       .fixed_bytes = fixed_bytes,
       .row_bytes = bytes_of_doubles(AttentionCall::doubles<M>(shape, call.spans, 1) + 1),
       .rows = wanted * most_workers});
  // Little room is for large batches rather than for many threads.
  const Index workers = larger(1, smaller(most_workers, room.rows() / wanted));
  call.rows = smaller(wanted, room.rows() / workers);
  const Index part = AttentionCall::doubles<M>(shape, call.spans, call.rows);
  const Index even_part = part + part % 2;
  auto memory = machine.template allocate<double>(even_part * workers);
  call.keys = keys.bring();
  call.values = values.bring();

  std::vector<std::vector<AttentionBatch>> batches(static_cast<std::size_t>(workers));
  for (Index first = 0, b = 0; first < count; first += call.rows, ++b) {
    batches[static_cast<std::size_t>(b % workers)].push_back(
        {out.rows.data() + first, smaller(call.rows, count - first), first * shape.heads_per_kv});
  }
  std::once_flag made;
  const auto outputs = [&] {
    std::call_once(made,
                   [&] { out.outputs.resize(static_cast<std::size_t>(query_count * shape.dv)); });
    return out.outputs.data();
  };
  const auto work = [&](M& by, Index worker) {
    attend(by, call, memory.data() + worker * even_part, batches[static_cast<std::size_t>(worker)],
           outputs, out);
  };
  if (workers == 1) {
    work(machine, 0);
  } else {
    machine.wait();  // for what the other machines read and write
    parallel_for(workers, [&](Index worker) {
      auto own = make();
      work(own, worker);
    });
  }
  return out;
}

}  // namespace kvbench::cuda
