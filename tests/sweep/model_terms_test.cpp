// Plans of dumps whose layers have sinks, ALiBi, chunks or no causal mask: prompt, rows, skips.
#include <doctest/doctest.h>

#include <map>
#include <numeric>

#include "algorithms/registry.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/plan_document.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep_folder.hpp"

namespace kvbench::test {
namespace model_terms_test {

PlannedDump dump_with(const std::function<void(StreamShape&)>& set, Index query_rows = 0) {
  PlannedDump dump = planned_dump("a", 100, {0}, 1, query_rows);
  set(dump.sequences[0].layers[0].shape);
  return dump;
}

Plan plan_of(const std::string& algorithms, const PlannedDump& dump, const std::string& more = "") {
  const SweepFolder folder;
  const SweepConfig config = parse_sweep(sweep(algorithms, more), folder.file("quick.json"), {},
                                         all_algorithms(), ErrorPolicy::kKeep);
  return make_plan(config, {dump});
}

// Why each algorithm is skipped; empty: it is not.
std::map<std::string, std::string> reasons(const PlannedDump& dump) {
  const char* algorithms = R"(
    {"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 30}},
    {"algorithm": "dilated_window", "params": {"budget": 30}},
    {"algorithm": "streaming_llm", "params": {"budget": 30}},
    {"algorithm": "h2o", "params": {"budget": 30}},
    {"algorithm": "h2o", "params": {"budget": 30, "semantics": "released"}, "label": "released"},
    {"algorithm": "snapkv", "params": {"budget": 60}},
    {"algorithm": "knorm", "params": {"budget": 60}},
    {"algorithm": "uniform", "params": {"budget": 60, "sinks": 8, "recent": 8}},
    {"algorithm": "tova", "params": {"budget": 60}},
    {"algorithm": "subgen", "params": {"delta": 1, "t": 2, "s": 8}},
    {"algorithm": "quest", "params": {"budget": 32}},
    {"algorithm": "sparq", "params": {"rank": 4, "k": 16, "recent": 4}},
    {"algorithm": "vattention", "params": {"sinks": 4, "recent": 4}},
    {"algorithm": "balancekv_prefill", "params": {"T": 1, "sinks": 8, "recent": 8}},
    {"algorithm": "d2o", "params": {"budget": 30}},
    {"algorithm": "oracle_topk", "params": {"budget": 30}})";
  std::map<std::string, std::string> out;
  const Plan plan = plan_of(algorithms, dump, R"("seeds": [0])");
  for (const PlannedCell& cell : plan.cells) out[*cell.label] = cell.skip_reason.value_or("");
  return out;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("where every row sees every token, all tokens are the prompt and all rows are scored") {
  const auto not_causal = [](StreamShape& shape) { shape.causal = false; };
  const char* exact = R"({"algorithm": "exact"})";
  for (const char* replay :
       {R"("seeds": [0])", R"("replay": {"prompt_tokens": 40})",
        R"("replay": {"prompt_tokens": 0.5})", R"("replay": {"prompt_tokens": 100})"}) {
    const Plan plan = plan_of(exact, dump_with(not_causal), replay);
    CHECK(plan.groups.front().prompt == 100);
    REQUIRE(plan.groups.front().rows.size() == 100);
    CHECK(plan.groups.front().rows.front() == 0);
    CHECK(cell_key(plan, plan.cells.front()).at("prompt_tokens") == 100);
  }
  std::vector<Index> last(7);
  std::iota(last.begin(), last.end(), 93);
  CHECK(plan_of(exact, dump_with(not_causal, 7)).groups.front().rows == last);
  CHECK(plan_of(exact, dump_with(not_causal), R"("evaluate": {"rows": {"last": 7}})")
            .groups.front()
            .rows == last);
  CHECK(plan_of(exact, dump_with(not_causal), R"("evaluate": {"rows": [99, 3]})")
            .groups.front()
            .rows == std::vector<Index>{3, 99});
  // No other row is there, and every method answers them.
  const Plan of_prompt =
      plan_of(R"({"algorithm": "snapkv", "params": {"budget": 40}})", dump_with(not_causal),
              R"("evaluate": {"rows": {"prompt": [99, 3]}})");
  CHECK(of_prompt.groups.front().rows == std::vector<Index>{3, 99});
  CHECK_FALSE(of_prompt.cells.front().skip_reason);
  CHECK(
      plan_of(exact, dump_with(not_causal), R"("select": {"tokens": 30})").groups.front().prompt ==
      30);
}

TEST_CASE("rows beyond the last, and cache files, are refused where every row sees every token") {
  const SweepFolder folder;
  const auto dump = dump_with([](StreamShape& shape) { shape.causal = false; });
  const auto message = [&](const char* more) {
    return folder.messages([&] { plan_of(R"({"algorithm": "exact"})", dump, more); }).at(0);
  };
  CHECK(has(message(R"("evaluate": {"rows": [100]})"), "must be a row, from 0 to 99"));
  CHECK(has(message(R"("output": {"caches": true})"), "/output/caches: cannot be true"));
}

TEST_CASE("methods that a layer leaves no meaning are skipped with the reason, others are not") {
  for (const auto& [label, why] : reasons(dump_with([](StreamShape&) {}))) {
    CAPTURE(label);
    CHECK(why.empty());
  }
  for (const auto& [label, why] : reasons(dump_with([](StreamShape& s) { s.sinks = true; }))) {
    CAPTURE(label);
    CHECK(why.empty());
  }
  for (const auto& [label, why] :
       reasons(dump_with([](StreamShape& s) { s.value_in_key = true; }))) {
    CAPTURE(label);
    CHECK(why.empty());
  }
  const std::set<std::string> no_alibi = {"subgen", "quest", "sparq", "balancekv_prefill", "d2o"};
  for (const auto& [label, why] : reasons(dump_with([](StreamShape& s) { s.alibi = true; }))) {
    CAPTURE(label);
    CHECK(why.empty() == (no_alibi.count(label) == 0));
    if (!why.empty()) CHECK(has(why, "ALiBi"));
  }
  const std::set<std::string> all_tokens = {
      "exact", "snapkv", "knorm", "uniform", "balancekv_prefill", "oracle_topk"};
  for (const auto& [label, why] : reasons(dump_with([](StreamShape& s) { s.causal = false; }))) {
    CAPTURE(label);
    CHECK(why.empty() == (all_tokens.count(label) == 1));
    if (!why.empty()) CHECK(has(why, "every row of the layer sees every token"));
  }
  const auto chunked = reasons(dump_with([](StreamShape& s) { s.chunk = 40; }));
  CHECK(has(chunked.at("subgen"), "chunks of 40 tokens"));
  CHECK(chunked.at("h2o").empty());
}

TEST_CASE("a storage is skipped where values lie in keys, and positions turn nothing under ALiBi") {
  const auto latent = dump_with([](StreamShape& s) { s.value_in_key = true; });
  const Plan stored =
      plan_of(R"({"algorithm": "exact"})", latent, R"("storage": ["float", {"keys": "q8_0"}])");
  REQUIRE(stored.cells.size() == 2);
  CHECK(!stored.cells[0].skip_reason);
  REQUIRE(stored.cells[1].skip_reason);
  CHECK(has(*stored.cells[1].skip_reason, "values are columns of its keys (value_in_key)"));
  CHECK(has(*stored.cells[1].skip_reason, "; leave storage out, or take a dump"));

  const auto turned = dump_with([](StreamShape& s) {
    s.alibi = true;
    s.rope = std::make_shared<Rope>(Rope{{1.0}, false});
  });
  const Plan moved = plan_of(
      R"({"algorithm": "streaming_llm", "params": {"budget": 30, "positions": "cache"}})", turned);
  REQUIRE(moved.cells[0].skip_reason);
  CHECK(has(*moved.cells[0].skip_reason, "ALiBi"));
}

TEST_CASE("a plan's document keeps what a layer has") {
  const auto dump = dump_with([](StreamShape& s) {
    s.sinks = s.alibi = s.value_in_key = s.key_bias = true;
    s.chunk = 40;
  });
  const Plan plan = plan_of(R"({"algorithm": "h2o", "params": {"budget": 30}})", dump);
  const Plan again = plan_from_document(nlohmann::json::parse(plan_document(plan).dump()),
                                        plan.hash, "j", all_algorithms());
  const StreamShape& shape = again.groups.front().shape;
  CHECK(shape.sinks);
  CHECK(shape.alibi);
  CHECK(shape.value_in_key);
  CHECK(shape.key_bias);
  CHECK(shape.chunk == 40);
  const Plan other =
      plan_of(R"({"algorithm": "exact"})", dump_with([](StreamShape& s) { s.causal = false; }));
  CHECK(!plan_from_document(nlohmann::json::parse(plan_document(other).dump()), other.hash, "j",
                            all_algorithms())
             .groups.front()
             .shape.causal);
}

}  // namespace model_terms_test
}  // namespace kvbench::test
