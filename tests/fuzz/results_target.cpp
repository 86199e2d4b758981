// A results file: refused with its name, or exported, checked and compared.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "check/check.hpp"
#include "compare/compare.hpp"
#include "fuzz/promise.hpp"
#include "fuzz/scratch_folder.hpp"
#include "results/export_csv.hpp"
#include "results/export_jsonl.hpp"
#include "results/export_markdown.hpp"
#include "results/file_records.hpp"
#include "results/read_results.hpp"

using namespace kvbench;
using fuzz::promise;

namespace {

constexpr const char* kBounds = R"({"schema_version": 1, "bounds": [
  {"name": "limit", "where": {"algorithm": "subgen"}, "metric": "errors.epsilon_spectral.last",
   "limit": {"param": "epsilon"}, "failure_rate": 0.01, "false_alarm": 1e-6},
  {"name": "paired", "where": {"algorithm": "balancekv_prefill", "params.T": 1},
   "than": {"algorithm": "uniform"}, "metric": "errors.relative_l2.mean",
   "paired_by": ["layer", "kv_head", "seed", "params.T"], "test": "sign", "false_alarm": 1e-6,
   "median_ratio_at_most": 0.9},
  {"name": "range", "metric": "memory.tokens_peak", "at_least": 1, "at_most": 2048}]})";

const std::string& path() {
  static const std::string made = fuzz::kScratchFolder.file("results.json");
  return made;
}

const BoundsFile& bounds() {
  static const BoundsFile parsed = parse_bounds(kBounds, "b.json");
  return parsed;
}

// Runs one of the program's uses of the file; false where it refused.
template <class Use>
bool accepted(Use use) {
  try {
    use();
  } catch (const InputError& error) {
    fuzz::check_refusal(error, "results.json");
    return false;
  }
  return true;
}

void export_all(const FileRecords& records) {
  const VisitRecords visit = [&](const auto& each) { records.visit(each); };
  std::ostringstream csv, lines, markdown;
  export_csv(visit, csv);
  export_jsonl(visit, lines);
  export_markdown(visit, markdown);
  promise(lines.str().empty() || csv.str().find("id,status") == 0, "CSV without its columns");
  promise(!markdown.str().empty(), "an empty table");
}

void compare_with_itself() {
  const CompareRules rules{.metrics = CompareRules::default_metrics()};
  ComparedResults results(rules.all_metrics(), path());
  read_results(path(), {.cell = [&](Json&& cell) { results.add(cell); }});
  const Comparison comparison = compare_results(results, results, rules);
  promise(comparison.passed(), "results are worse than themselves");
  promise(comparison.only_a.empty() && comparison.only_b.empty(), "a cell without its like");
  promise(!comparison_json(comparison, rules).empty(), "an empty comparison");
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::ofstream(path(), std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  accepted([] { export_all(FileRecords(path(), FileRecords::Kind::kCells)); });
  accepted([] {
    const CheckedResults results(bounds(), path());
    promise(!report_json(check_bounds(bounds(), results)).empty(), "an empty report");
  });
  accepted([] { compare_with_itself(); });
  return 0;
}
