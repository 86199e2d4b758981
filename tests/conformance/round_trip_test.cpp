// 8. The rows that an algorithm keeps, written to a cache file and replayed from it, are the same
// cell.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cellfiles/cache_file.hpp"
#include "conformance/points.hpp"
#include "replay/kept_recorder.hpp"
#include "replay/replay.hpp"
#include "support/algorithm_named.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace round_trip_test {

struct Recorded {
  CellResult cell;
  std::optional<KeptRows> kept;
};

Recorded recorded(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
                  const Params& params, const std::vector<Index>& rows) {
  const ReplaySetting setting{.prompt = prompt, .rows = rows, .keep_row_values = false};
  ReplayCell cell{&algorithm, params, 3};
  const SharedResults scope = decided(algorithm, params, 3, stream, prompt);
  if (algorithm.replay_scope(params) != ReplayScope::kHead) cell.model_results = &scope;
  KeptRecorder recorder(stream, setting, cell);
  cell.watch = &recorder;
  std::optional<CellResult> out;
  replay(stream, setting, {cell}, cpu_kernels(),
         [&](std::size_t, CellResult&& result) { out = std::move(result); });
  REQUIRE(out);
  REQUIRE_MESSAGE(!out->failed, out->reason);
  return {std::move(*out), recorder.finish()};
}

// The cache of one head, by way of a file.
std::shared_ptr<const KeptCache> through_a_file(const Stream& stream, const KeptRows& kept) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("kvbench-round-trip-" + std::to_string(getpid()) + ".h5");
  {
    CacheWriter writer(path, {.method = "m", .producer = "", .params = "", .seed = {}, .dump = ""});
    writer.add(stream.id, stream.shape, kept);
    writer.finish();
  }
  auto cache = open_cache(path, {.first_in_child = false});
  std::filesystem::remove(path);
  return cache;
}

void check_same_memory(const MemoryReport& a, const MemoryReport& b, bool never_evicts) {
  CHECK(a.tokens == b.tokens);
  CHECK(a.tokens_peak == b.tokens_peak);
  CHECK(a.distinct_tokens == b.distinct_tokens);
  CHECK(a.bookkeeping == b.bookkeeping);
  CHECK(a.bytes == b.bytes);
  CHECK(a.peak_bytes == b.peak_bytes);
  CHECK(a.fraction == b.fraction);
  CHECK(b.declared == never_evicts);  // its vectors are said in bytes
  if (never_evicts) return;
  CHECK(a.vectors == b.vectors);
  CHECK(a.numbers == b.numbers);
}

TEST_CASE("what was kept goes through a cache file and gives the same errors and memory") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2},
      {.tokens = 60, .d = 5, .dv = 3, .window = 17},
      {.tokens = 60, .d = 3, .dv = 7, .softcap = 4.0, .kind = StreamKind::kSomeZeroValues}};
  const AlgorithmDescription& given = algorithm_named("given");
  Cases cases;
  std::set<std::string> not_rows;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(repeating(spec, 35));
    const Stream& stream = owned->stream;
    for (const Subject& subject : subjects()) {
      const AlgorithmDescription& algorithm = *subject.algorithm;
      for (const Point& point : subject.row->points) {
        for (const Index prompt : {0, 35}) {
          const Params params = params_for(algorithm, point.given);
          if (algorithm.not_rows(params)) {
            not_rows.insert(algorithm.id);
            continue;
          }
          if (!cases.runs(subject, point.given, params, stream.shape, prompt)) continue;
          for (const std::vector<Index>& rows :
               {std::vector<Index>{36, 37, 38, 50, 59}, std::vector<Index>{44}}) {
            CAPTURE(describe(subject.row->id, point.given));
            CAPTURE(spec.window);
            CAPTURE(prompt);
            const Recorded first = recorded(stream, prompt, algorithm, params, rows);
            REQUIRE(first.kept);
            Params again;
            again.set("file", CacheParameter{"", through_a_file(stream, *first.kept)});
            const KeptHead* head =
                std::get<CacheParameter>(again.at("file")).content->find(stream.id);
            REQUIRE(head != nullptr);
            CHECK_FALSE(misfit(*head, stream.shape, prompt));
            const CellResult second = recorded(stream, prompt, given, again, rows).cell;
            for (const NamedPair& pair : paired_metrics(first.cell.metrics, second.metrics)) {
              CAPTURE(pair.path);
              CHECK(std::isnan(pair.a) == std::isnan(pair.b));
              if (std::isnan(pair.b)) continue;
              CHECK(std::fabs(pair.a - pair.b) <= 1e-12 * (std::fabs(pair.a) + 1.0));
            }
            check_same_memory(first.cell.memory, second.memory, algorithm.never_evicts(params));
          }
        }
      }
    }
  }
  CHECK(not_rows == std::set<std::string>{"h2o", "keyformer", "performer", "streaming_llm",
                                          "subgen", "wildcat"});
}
}  // namespace round_trip_test
}  // namespace kvbench::test
