#include "output/verification_table.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <string>

#include "output/cell_text.hpp"
#include "output/log.hpp"
#include "output/table.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kMaxListed = 20;

std::string entry_text(const Json& entry) {
  std::string text = label_text(text_of(entry.value("label", Json(""))),
                                text_of(entry.value("algorithm", Json(""))));
  const Json params = entry.value("params", Json());
  if (params.is_object() && !params.empty()) text += " " + params_text(params);
  if (entry.contains("tokens")) text += " tokens=" + text_of(entry["tokens"]);
  const Json layer = entry.value("layer", Json());
  return text + (layer.is_null() ? ", all layers" : ", layer " + text_of(layer));
}

void print_differences(const CellVerdict& verdict, const SummaryCheck& summary) {
  Table table({{"recorded"}, {"recomputed"}, {"what", Align::kLeft}, {"of", Align::kLeft}}, "  ",
              "  ");
  std::size_t rows = 0;
  const auto add = [&](const RecordDifference& what, const std::string& of) {
    if (rows++ < kMaxListed)
      table.add({text_of(what.recorded), text_of(what.recomputed), what.path, of});
  };
  for (const auto& [cell, what] : verdict.differences) add(what, cell_text(cell));
  for (const auto& [entry, what] : summary.differences) add(what, entry_text(entry));
  if (rows == 0) return;
  std::string text = table.text(terminal_columns(stdout));
  if (rows > kMaxListed) text += fmt::format("  and {} more\n", rows - kMaxListed);
  print_block(text + "\n");
}

}  // namespace

void print_verification(const VerifyRequest& request, const Verification& verification) {
  const auto& [sample, verdict, summary, tolerance, unknown] = verification;
  print_differences(verdict, summary);
  const char* how = tolerance.relative == 0.0 ? "bit by bit" : "to 1e-9";
  print_text(
      "{} of {} cells computed again are equal, {} (drawn with --seed {} from {} of {} cells)\n",
      verdict.equal, verdict.computed, how, request.seed, sample.eligible, sample.ok);
  if (sample.unknown > 0) {
    print_text(
        "{} cells of {}, written in Python, were not computed again; run them again in Python, "
        "kvbench.run(.., methods=[..], out=\"again\"), and compare: kvbench compare {} "
        "again/results.json\n",
        sample.unknown, fmt::join(unknown, ", "), request.results);
  }
  print_text("{} of {} entries of the summary follow from the records of the file, {}\n",
             summary.equal, summary.entries, how);
  if (summary.layer_records > 0) {
    print_text("{} records of whole layers were not computed again\n", summary.layer_records);
  }
}

}  // namespace kvbench
