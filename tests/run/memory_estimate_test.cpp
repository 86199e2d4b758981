#include "run/memory_estimate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "algorithms/registry.hpp"
#include "metrics/metric_table.hpp"
#include "results/summary.hpp"
#include "support/algorithm_named.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {
namespace memory_estimate_test {

// Layer 0 of one dump (d 64, dv 64, 2 KV heads with 3 query heads each), its last rows scored.
Plan plan_of(Index tokens, Index rows, const std::string& algorithms = entry("exact", "")) {
  const SweepFolder folder;
  return make_plan(
      folder.parse(sweep(algorithms, R"("seeds": [1, 2, 3], "replay": {"prompt_tokens": 1}, )"
                                     R"("evaluate": {"rows": {"last": )" +
                                         std::to_string(rows) + "}}")),
      {planned_dump("a", tokens, {0}, 2)});
}

// Numbers that a cell holds of each row and query head: the metrics of a row, and one being sorted.
double numbers() {
  double count = 1.0;
  for (const Metric& metric : all_metrics()) count += metric.of_row != nullptr ? 1.0 : 0.0;
  return count;
}

double bytes_of(const Plan& plan, int threads) {
  return estimate_memory_bytes(plan, plan.groups[0], threads);
}

TEST_CASE("the estimate of a small shape, added up by hand") {
  const Plan plan = plan_of(100, 10);
  // One layer, two planned cells of one point, which are of one setting.
  const double program = 32.0 * 1024 * 1024 + 2000 + plan_bytes(2, 1) + 2 * sizeof(PlannedSetting);
  const double stream = 8 * (100 * (64 + 64) + 3 * 100 * 64);    // keys, values, queries
  const double reference = 8 * 10 * (3 * (64 + 3) + 2);          // exact answers of 10 rows
  const double logits = 10 * 24 * 3 * 100;                       // and exponentials, twice
  const double cell = 8 * 10 * 3 * (64 + numbers()) + 64 * 100;  // differences, metrics, sketch
  const double copies = 8 * 100 * (64 + 64);                     // packed for a kernel
  const double scaled = 8 * 10 * 3 * 64;                         // differences, for their norm
  CHECK(bytes_of(plan, 1) == program + stream + reference + logits + cell + copies + scaled);
  // With more threads the next stream is read ahead; one cell per head keeps one thread at work.
  CHECK(bytes_of(plan, 2) == bytes_of(plan, 1) + stream);
  CHECK(bytes_of(plan, 8) == bytes_of(plan, 2));
}

TEST_CASE("norms of values that a dump holds are part of a stream") {
  Plan plan = plan_of(100, 10);
  const double without = bytes_of(plan, 1);
  plan.groups[0].shape.wo_v_l1 = true;
  CHECK(bytes_of(plan, 1) == without + 8.0 * 3 * 100);
}

TEST_CASE("streams of a scope stay in memory while it is decided, up to 256 MiB") {
  const SweepFolder folder;
  const AlgorithmDescription& tova = algorithm_named("tova");
  const auto bytes = [&](Index tokens, Index heads) {
    const Plan plan = make_plan(
        parse_sweep(sweep(entry("tova", R"("budget": 8)"), R"("replay": {"prompt_tokens": 50})"),
                    folder.file("s.json"), {}, all_algorithms()),
        {planned_dump("a", tokens, {0}, static_cast<int>(heads))});
    const ScopeSize size{heads, 3, 64, 50, tokens};
    const ModelWork work = tova.model_work(*plan.cells[0].params, 0);
    return bytes_of(plan, 1) - plan_bytes(static_cast<double>(heads), 1) - work.bytes(size);
  };
  const auto stream = [](Index tokens) { return 8.0 * static_cast<double>(tokens) * (128 + 192); };
  CHECK(bytes(100, 4) == bytes(100, 1) + 3 * stream(100));
  // 244 MiB each: two are in memory one at a time.
  CHECK(bytes(100'000, 2) == bytes(100'000, 1));
}

TEST_CASE("cells at work at the same time are counted, up to the threads") {
  const Plan plan = plan_of(100, 10, entry("uniform", R"("T": 1)"));  // three seeds
  const double cell = 8 * 10 * 3 * (64 + numbers()) + 64 * 100;
  const double copies = 8 * 100 * (64 + 64) + 8 * 10 * 3 * 64;
  CHECK(bytes_of(plan, 3) == bytes_of(plan, 2) + cell + copies);
  CHECK(bytes_of(plan, 4) == bytes_of(plan, 3));
}

TEST_CASE("logits of few cells stay below 64 MiB, however many rows there are") {
  // 18 MB per row: three rows are within the limit, four are not.
  const Index n = 250'000;
  // Reference and difference, and that again when its norm is taken.
  const double row = 8.0 * (3 * (64 + 3) + 2) + 8.0 * 3 * (64 + numbers()) + 8.0 * 3 * 64;
  CHECK(bytes_of(plan_of(n, 3), 1) == bytes_of(plan_of(n, 2), 1) + row + 24.0 * 3 * n);
  CHECK(bytes_of(plan_of(n, 12), 1) == bytes_of(plan_of(n, 11), 1) + row);
  CHECK(bytes_of(plan_of(n, 4), 1) ==
        bytes_of(plan_of(n, 3), 1) + row + 64.0 * 1024 * 1024 - 3 * 24.0 * 3 * n);
}

TEST_CASE("logits of many cells stay below 256 MiB, and all cells are under way beyond") {
  // 72 MB per row: three rows are within the limit, four are not.
  const Index n = 1'000'000;
  const std::string nine = entry("uniform", R"("T": [1, 2, 3])");  // three seeds each
  const auto bytes = [&](Index rows) { return bytes_of(plan_of(n, rows, nine), 1); };
  const double reference = 8.0 * (3 * (64 + 3) + 2) + 8.0 * 3 * 64;  // and differences, scaled
  const double difference = 8.0 * 3 * (64 + numbers());
  CHECK(bytes(12) == bytes(11) + reference + 9 * difference);
  // Eight cells are few: were they what is left of the nine, all were under way at one row already.
  const double few = 24.0 * 3 * n + 8 * (difference + 64.0 * n);
  const double many = 24.0 * 3 * n + difference + 64.0 * n;
  CHECK(bytes(1) == bytes(4) - 3 * reference - (256.0 * 1024 * 1024) -
                        9 * (4 * difference + 64.0 * n) + std::max(few, many));
}

TEST_CASE("what records of whole layers gather, added up by hand") {
  const SweepFolder folder;
  const auto made = [&](Index hidden) {
    PlannedDump dump = planned_dump("a", 100, {0}, 2);
    dump.sequences[0].layers[0].hidden = hidden;
    dump.sequences[0].layers[0].wo_chunk_bytes = 7;
    return make_plan(folder.parse(sweep(entry("window", R"("budget": [4, 8])"),
                                        R"("evaluate": {"rows": {"last": 10}})")),
                     {dump});
  };
  const Plan with = made(192);
  const Plan without = made(0);
  const WorkGroup& group = with.groups[0];
  REQUIRE(group.layer_records.size() == 2);
  const double records = 2 * 400;                 // in the plan
  const double output = 8 * 10 * 192;             // 10 rows: exact, and of each setting
  const double of_setting = output + 8 * 10 * 6;  // with a norm per query head
  const double answers = 8 * 10 * 3 * 64;         // a KV head's: exact, and of each setting
  const double weight = 8 * 64 * 192 + 7;         // a query head's, with its chunks
  const double block = 2 * 8 * 64 * 512;          // a product, per thread
  const double base = bytes_of(without, 1) + records + output + answers + weight + block;
  CHECK(estimate_memory_bytes(with, group, 1, 1) == base + of_setting + answers);
  CHECK(estimate_memory_bytes(with, group, 1) == base + 2 * (of_setting + answers));
  CHECK(layers_at_once(with, group, 1, base + 1.9 * (of_setting + answers)) == 1);
  CHECK(layers_at_once(with, group, 1, base + 2.1 * (of_setting + answers)) == 2);
}

// 4000 tokens of the same shape, 3000 of them prompt; as many cells as `seeds`, on one KV head.
double declared_bytes(const std::string& algorithm, const std::string& params, int threads = 1,
                      const std::string& seeds = "[1]") {
  const SweepFolder folder;
  const std::string more =
      R"("replay": {"prompt_tokens": 3000}, "evaluate": {"rows": {"last": 2}}, "seeds": )" + seeds;
  const Plan plan = make_plan(parse_sweep(sweep(entry(algorithm, params), more),
                                          folder.file("s.json"), {}, all_algorithms()),
                              {planned_dump("a", 4000, {0}, 1)});
  return bytes_of(plan, threads);
}

TEST_CASE("what fitting tokens takes is counted where it is more than copies of all vectors") {
  const double copies = 8.0 * 4000 * (64 + 64);
  const auto more = [&](const std::string& params, const std::string& less) {
    return declared_bytes("attention_matching", params) -
           declared_bytes("attention_matching", less);
  };
  // 192 references, 500 tokens: 192 by 500 and twice 192 by 192 numbers are less than the copies.
  const std::string small = R"("budget": 500, "rows": 64, "steps": 0)";
  // Three matrices of 500 by 500; 128 rows of logits and answers; keys and lists of tokens.
  const double descent = 8.0 * (3 * 500.0 * 500 + 128 * (500 + 64) + 500 * (64 + 16));
  REQUIRE(descent > copies);
  CHECK(more(R"("budget": 500, "rows": 64, "steps": 2)", small) == descent - copies);
  // A pursuit: products of pairs, the same as a matrix, and its factor.
  const double pursuit = 20.0 * 800 * 800 + 64 * 800 + 16 * 3000;
  const double exponentials =
      declared_bytes("attention_matching", R"("budget": 10, "rows": 64, "select": "omp")") -
      declared_bytes("attention_matching", R"("budget": 10, "rows": 64, "steps": 0)");
  const double vectors = (800 - 500) * (8.0 * (64 + 64) + 96);  // fitted values
  CHECK(more(R"("budget": 800, "rows": 64, "select": "omp")", small) ==
        pursuit - copies + vectors + exponentials);
}

TEST_CASE("tables that cells hold are counted for each that is under way") {
  const auto magicpig = [](const std::string& bits, const std::string& seeds) {
    return declared_bytes("magicpig", R"("tables": 150, "bits": )" + bits, 1, seeds);
  };
  // Planes, and of each prompt token a key, its norm and codes.
  const double held = 8.0 * 1500 * 64 + 3000 * (8.0 * 64 + 8 + 4 * 150);
  CHECK(magicpig("10", "[1]") == declared_bytes("oracle_topk", R"("budget": 9)") + held);
  // Logits of all rows are too many for one block: all three cells are under way at once.
  CHECK(magicpig("10", "[1, 2, 3]") - magicpig("5", "[1, 2, 3]") == 3 * 8.0 * 750 * 64);
}

TEST_CASE("logits of prompt rows are counted while shared work is computed") {
  // A block of 2^22 logits and exponentials, and keys; sums of every query head, and two numbers.
  const double shared = 8.0 * (3 + 2) * 4000;
  const double block = 16.0 * (1 << 22) + 8.0 * 4000 * 64;
  CHECK(declared_bytes("roco", R"("budget": 100)") ==
        declared_bytes("exact", "") + shared + block - 8.0 * 4000 * (64 + 64));
}

TEST_CASE("a group whose cells are all skipped needs nothing") {
  const Plan plan = plan_of(100, 10, entry("window", R"("budget": 0.0001)"));
  REQUIRE(plan.cells[0].skip_reason.has_value());
  CHECK(bytes_of(plan, 2) == 0.0);
}

TEST_CASE("the estimate of writing results, added up by hand") {
  const Plan plan = plan_of(100, 10, entry("uniform", R"("T": [1, 2])"));  // three seeds, two heads
  REQUIRE(plan.cells.size() == 12);
  const double program =
      32.0 * 1024 * 1024 + 2000 + plan_bytes(12, 2) + 2 * 2 * sizeof(PlannedSetting);
  const double summary = 2 * Summary::setting_bytes() + 12 * Summary::record_bytes() +
                         Summary::rows_bytes(12, 0) + Summary::entry_bytes(2, 3, 6);
  CHECK(estimate_results_bytes(plan) == program + summary);
  // The larger of the two is what a run takes.
  const double group = estimate_memory_bytes(plan, plan.groups[0], 1);
  CHECK(estimate_peak_bytes(plan, {true}, 1) == std::max(group, estimate_results_bytes(plan)));
  CHECK(estimate_peak_bytes(plan, {false}, 1) == estimate_results_bytes(plan));
}

TEST_CASE("results that need more than the limit are refused, with both numbers") {
  const Plan plan = plan_of(100, 10);
  const double need = estimate_results_bytes(plan);
  CHECK_NOTHROW(check_results_limit(plan, need));
  CHECK_THROWS_WITH_AS(check_results_limit(plan, need - 2e6),
                       doctest::Contains(bytes_text(need).c_str()), InputError);
}

TEST_CASE("every selected group above the limit is named, and no other") {
  const SweepFolder folder;
  const Plan plan =
      make_plan(folder.parse(sweep(entry("exact", ""))), {planned_dump("a", 100, {0, 1, 2}, 2)});
  const double need = estimate_memory_bytes(plan, plan.groups[0], 1);
  const auto messages = [&](const std::vector<bool>& groups, double limit) {
    return folder.messages([&] { check_memory_limit(plan, groups, 1, limit); });
  };
  CHECK(messages({true, true, true}, need).empty());
  const auto found = messages({true, false, true}, need - 1);
  REQUIRE(found.size() == 2);
  CHECK(found[0].find("layer 0") != std::string::npos);
  CHECK(found[1].find("layer 2") != std::string::npos);
}

TEST_CASE("bytes are written with three digits and the largest unit that fits") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(999) == "999 B");
  CHECK(bytes_text(1000) == "0.977 KiB");
  CHECK(bytes_text(1023) == "0.999 KiB");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(5.0 * 1024 * 1024 * 1024) == "5 GiB");
}

}  // namespace memory_estimate_test
}  // namespace kvbench::test
