// The cost of codecs: encoding and decoding the keys of a stream, next to the memory that is read
// and written; and replays of one cell with a storage, next to the same cell without one.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "bench/algorithm_cell.hpp"
#include "bench/bench_stream.hpp"
#include "bench/floor.hpp"
#include "storage/codec_registry.hpp"
#include "system/parallel.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kTokens = 8192;
constexpr Index kDimension = 64;
constexpr Index kRows = 256;
constexpr Index kVectorsTogether = 64;

CodecSetting setting_of(const std::string& id, const Given& given) {
  const CodecDescription& codec = *find_codec(id);
  CodecSetting out{&codec, {}};
  for (const Parameter& parameter : codec.parameters) {
    const auto found = given.find(parameter.name);
    out.params.set(parameter.name, found != given.end() ? found->second : *parameter.default_value);
  }
  return out;
}

// The keys of the benchmarks' stream and room for their codes.
struct Keys {
  const Stream& stream = bench_stream(kTokens, kDimension);
  std::unique_ptr<Codec> codec;
  std::vector<std::byte> codes;
  std::vector<double> decoded;

  Keys(const std::string& id, const Given& given)
      : codec(setting_of(id, given).create({stream, kTokens - kRows, 0, CacheTensor::kKeys})),
        codes(static_cast<std::size_t>(blocks() * codec->bytes())),
        decoded(static_cast<std::size_t>(kTokens * kDimension)) {
    encode();
  }

  // Blocks that are written together, as a cell's are: of some 64 vectors.
  Index blocks() const { return kTokens / codec->group(); }
  Index together() const { return std::max<Index>(1, kVectorsTogether / codec->group()); }
  template <class F>
  void for_some_blocks(const F& f) {
    for (Index b = 0; b < blocks(); b += together()) {
      const Index vectors = std::min(together(), blocks() - b) * codec->group();
      f(b * codec->group(), vectors, codes.data() + b * codec->bytes());
    }
  }
  void encode() {
    for_some_blocks([&](Index first, Index vectors, std::byte* some) {
      codec->encode_all({stream.keys.row(first), vectors, kDimension}, some);
    });
    benchmark::DoNotOptimize(codes.data());
  }
  void decode() {
    for_some_blocks([&](Index first, Index vectors, const std::byte* some) {
      codec->decode_all(some, {decoded.data() + first * kDimension, vectors, kDimension});
    });
    benchmark::DoNotOptimize(decoded.data());
  }
  // Numbers in double precision and codes, each moved once, on one thread.
  double floor_seconds() const {
    const auto bytes = static_cast<double>(codes.size() + decoded.size() * sizeof(double));
    return bytes / machine_floor().read_bytes_one;
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Counters: processor_ms, the median of a call, and how many times its floor that is.
template <class Body>
void in_processor_time(benchmark::State& state, double floor_seconds, const Body& body) {
  std::vector<double> seconds;
  for ([[maybe_unused]] const auto _ : state) {
    const double start = thread_seconds();
    body();
    seconds.push_back(thread_seconds() - start);
  }
  state.counters["floor_ms"] = 1e3 * floor_seconds;
  state.counters["processor_ms"] = 1e3 * median(seconds);
  state.counters["times_floor"] = median(seconds) / floor_seconds;
}

void encode_keys(benchmark::State& state, const std::string& id, const Given& given) {
  Keys keys(id, given);
  in_processor_time(state, keys.floor_seconds(), [&] { keys.encode(); });
}

void decode_keys(benchmark::State& state, const std::string& id, const Given& given) {
  Keys keys(id, given);
  in_processor_time(state, keys.floor_seconds(), [&] { keys.decode(); });
}

// float_ms and stored_ms, processor time, medians of replays in turns on one thread, the exact
// reference included, and the median of their ratios.
void stored_cell(benchmark::State& state, const std::string& algorithm_id, const Given& given,
                 const std::string& codec, const Given& codec_given) {
  const Stream& stream = bench_stream(kTokens, kDimension);
  ReplaySetting setting;
  setting.prompt = kTokens - kRows;
  setting.rows.resize(kRows);
  std::iota(setting.rows.begin(), setting.rows.end(), kTokens - kRows);
  const AlgorithmDescription& algorithm = *find_algorithm(algorithm_id);
  std::vector<ReplayCell> plain = cells_of(algorithm, params_of(algorithm, given), 0, 1);
  std::vector<ReplayCell> stored = plain;
  const bool of_values = find_codec(codec)->of_values;
  const CodecSetting both = setting_of(codec, codec_given);
  stored.front().storage =
      std::make_shared<const Storage>(Storage{both, of_values ? both : CodecSetting{}});
  const auto seconds_of = [&](const std::vector<ReplayCell>& cells) {
    const double start = thread_seconds();
    last_cell(stream, setting, cells);
    return thread_seconds() - start;
  };
  const int threads = thread_count();
  set_thread_count(1);
  std::vector<double> of_plain;
  std::vector<double> of_stored;
  std::vector<double> ratios;
  for ([[maybe_unused]] const auto _ : state) {
    of_plain.push_back(seconds_of(plain));
    of_stored.push_back(seconds_of(stored));
    ratios.push_back(of_stored.back() / of_plain.back());
  }
  set_thread_count(threads);
  state.counters["float_ms"] = 1e3 * median(of_plain);
  state.counters["stored_ms"] = 1e3 * median(of_stored);
  state.counters["stored_of_float"] = median(ratios);
}

Value count(std::int64_t n) { return Value{n}; }
Value word(const char* text) { return Value{std::string(text)}; }

#define KVBENCH_CODEC(name, id, ...)                           \
  BENCHMARK_CAPTURE(encode_keys, name, id, Given{__VA_ARGS__}) \
      ->Unit(benchmark::kMillisecond)                          \
      ->UseRealTime();                                         \
  BENCHMARK_CAPTURE(decode_keys, name, id, Given{__VA_ARGS__}) \
      ->Unit(benchmark::kMillisecond)                          \
      ->UseRealTime()

KVBENCH_CODEC(bf16, "bf16");
KVBENCH_CODEC(fp16, "fp16");
KVBENCH_CODEC(fp8_e4m3, "fp8_e4m3");
KVBENCH_CODEC(fp8_e5m2_token, "fp8_e5m2", {"scale", word("token")});
KVBENCH_CODEC(q8_0, "q8_0");
KVBENCH_CODEC(q5_0, "q5_0");
KVBENCH_CODEC(q5_1, "q5_1");
KVBENCH_CODEC(q4_0, "q4_0");
KVBENCH_CODEC(q4_1, "q4_1");
KVBENCH_CODEC(mxfp4, "mxfp4");
KVBENCH_CODEC(nvfp4, "nvfp4");
KVBENCH_CODEC(int_token, "int");
KVBENCH_CODEC(int_channel, "int", {"per", word("channel")});
KVBENCH_CODEC(int_rotated, "int", {"rotate", word("hadamard")});
KVBENCH_CODEC(kivi, "kivi");
KVBENCH_CODEC(token, "token");
KVBENCH_CODEC(hqq, "hqq");
KVBENCH_CODEC(turboquant_mse, "turboquant");
KVBENCH_CODEC(turboquant_prod, "turboquant", {"form", word("prod")});
KVBENCH_CODEC(qjl, "qjl");
KVBENCH_CODEC(polarquant, "polarquant");
KVBENCH_CODEC(think, "think");

#define KVBENCH_STORED(name, algorithm, given, codec, ...)                                \
  BENCHMARK_CAPTURE(stored_cell, name, algorithm, Given given, codec, Given{__VA_ARGS__}) \
      ->Unit(benchmark::kMillisecond)                                                     \
      ->UseRealTime()

KVBENCH_STORED(exact_q8_0, "exact", {}, "q8_0");
KVBENCH_STORED(exact_q4_0, "exact", {}, "q4_0");
KVBENCH_STORED(exact_token, "exact", {}, "token");
KVBENCH_STORED(exact_kivi, "exact", {}, "kivi");
KVBENCH_STORED(exact_int_channel, "exact", {}, "int", {"per", word("channel")});
KVBENCH_STORED(exact_turboquant, "exact", {}, "turboquant");
KVBENCH_STORED(exact_turboquant_residual, "exact", {}, "turboquant", {"residual", count(128)});
KVBENCH_STORED(exact_qjl, "exact", {}, "qjl");
KVBENCH_STORED(exact_polarquant, "exact", {}, "polarquant");
KVBENCH_STORED(snapkv_q8_0, "snapkv", ({{"budget", count(1024)}}), "q8_0");
KVBENCH_STORED(snapkv_kivi, "snapkv", ({{"budget", count(1024)}}), "kivi");
KVBENCH_STORED(snapkv_turboquant_residual, "snapkv", ({{"budget", count(1024)}}), "turboquant",
               {"residual", count(128)});
KVBENCH_STORED(quest_q8_0, "quest", ({{"budget", count(1024)}}), "q8_0");
KVBENCH_STORED(quest_kivi, "quest", ({{"budget", count(1024)}}), "kivi");

}  // namespace
}  // namespace kvbench::bench
