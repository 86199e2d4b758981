#include "output/plan_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "output/cell_text.hpp"
#include "output/progress.hpp"
#include "output/table.hpp"
#include "output/terminal.hpp"
#include "run/memory_estimate.hpp"
#include "run/multiply_adds.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/stored_budget.hpp"

namespace kvbench {
namespace {

// visit(cell, count) for each setting on a selected KV head: its first cell, and how many.
template <class Visit>
void for_each_setting(const Plan& plan, const ShardSelection& selection, const Visit& visit) {
  plan.cells.for_each_setting(CellRange(0, plan.cells.size()),
                              [&](const PlannedCell& cell, std::size_t count) {
                                if (selection.has(cell)) visit(cell, count);
                              });
}

// Skip reasons, most frequent first.
std::vector<PlanReport::Skip> skips_of(const Plan& plan, const ShardSelection& selection) {
  std::map<std::string, PlanReport::Skip> by_reason;
  std::set<std::pair<const PlanReport::Skip*, const std::string*>> seen;  // a point's label is one
  for_each_setting(plan, selection, [&](const PlannedCell& cell, std::size_t count) {
    if (!cell.skip_reason) return;
    PlanReport::Skip& skip = by_reason[*cell.skip_reason];
    skip.cells += count;
    if (seen.emplace(&skip, &*cell.label).second) skip.labels.push_back(*cell.label);
  });
  std::vector<PlanReport::Skip> sorted;
  for (auto& [reason, skip] : by_reason) {
    skip.reason = reason;
    std::set<std::string> known;
    std::erase_if(skip.labels,
                  [&](const std::string& label) { return !known.insert(label).second; });
    sorted.push_back(std::move(skip));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.cells > b.cells; });
  return sorted;
}

constexpr std::size_t kShownLabels = 6;

// "h2o, snapkv | K kivi V kivi and 3 more".
std::string labels_text(const std::vector<std::string>& labels) {
  std::string text;
  for (std::size_t i = 0; i < std::min(labels.size(), kShownLabels); ++i) {
    text += (i > 0 ? ", " : "") + labels[i];
  }
  if (labels.size() > kShownLabels) {
    text += fmt::format(" and {} more", labels.size() - kShownLabels);
  }
  return text;
}

// memory.fraction of a cell, if it is known before it runs: worked out once for a setting on a
// group, whose cells come one after another.
class KnownMemory {
 public:
  explicit KnownMemory(const Plan& plan) : plan_(plan) {}

  std::optional<double> of(const PlannedCell& cell) {
    const WorkGroup& group = plan_.groups[cell.group];
    if (cell.skip_reason || group.rows.empty()) return std::nullopt;
    if (cell.group != group_) known_.clear();
    group_ = cell.group;
    const auto [place, is_new] =
        known_.try_emplace({cell.params.get(), cell.storage.get()}, std::nullopt);
    if (is_new) {
      place->second = known_memory(*cell.algorithm, *cell.params, cell.storage.get(), group.shape,
                                   group.prompt, plan_.element_bytes);
    }
    return place->second;
  }

 private:
  const Plan& plan_;
  std::size_t group_ = 0;
  std::map<std::pair<const Params*, const Storage*>, std::optional<double>> known_;
};

// The numbers that were solved for a memory, by parameter.
Json solved_tokens(const PlannedCell& cell) {
  Json solved = Json::object();
  for (const auto& [name, value] : cell.params->entries()) {
    const auto* memory = std::get_if<MemoryBudget>(&value);
    if (memory != nullptr && memory->is_solved()) solved[name] = memory->solved;
  }
  return solved;
}

// The settings of a plan: what was solved for a memory, and the part of the exact cache's bytes
// that is known before they run; over all groups the least and the most.
class SettingMemory {
 public:
  SettingMemory(const Plan& plan, const ShardSelection& selection) {
    for_each_setting(plan, selection, [&](const PlannedCell& cell, std::size_t) {
      if (!cell.skip_reason) params_.add(params_json(*cell.params));
    });
    KnownMemory known(plan);
    for_each_setting(plan, selection, [&](const PlannedCell& cell, std::size_t) {
      if (!cell.skip_reason) add(cell, known.of(cell));
    });
  }

  std::string table(std::size_t columns) const {
    if (lines_.empty()) return "";
    Table table(
        {{"setting", Align::kLeft}, {"solved", Align::kRight, 8}, {"fraction", Align::kRight, 9}},
        " ");
    for (std::size_t i = 0; i < std::min(lines_.size(), kShownSettings); ++i) {
      const Line& line = lines_[i];
      table.add({line.text, line.solved.text([](double x) { return fmt::format("{:.0f}", x); }),
                 line.memory.text([](double x) { return fmt::format("{:.4f}", x); })});
    }
    std::string out = "\nmemory, as a fraction of the exact cache:\n" + table.text(columns);
    if (lines_.size() > kShownSettings) {
      out += fmt::format("and {} more settings; --json has all\n", lines_.size() - kShownSettings);
    }
    return out;
  }

 private:
  static constexpr std::size_t kShownSettings = 60;

  // Empty: in no cell.
  struct Range {
    double least = 0.0;
    double most = -1.0;
    void add(double value) {
      least = most < 0.0 ? value : std::min(least, value);
      most = std::max(most, value);
    }
    template <class Text>
    std::string text(const Text& one) const {
      if (most < 0.0) return "";
      return one(least) == one(most) ? one(most) : one(least) + " to " + one(most);
    }
  };
  struct Line {
    std::string text;
    Range solved;
    Range memory;
  };

  void add(const PlannedCell& cell, std::optional<double> memory) {
    const Json solved = solved_tokens(cell);
    if (solved.empty() && !memory) return;
    const std::string params = params_text(params_.of(params_json(*cell.params)));
    const std::string text = *cell.label + (params.empty() ? "" : ": " + params);
    const auto [place, is_new] = find_.try_emplace(text, lines_.size());
    if (is_new) lines_.push_back({text, {}, {}});
    Line& line = lines_[place->second];
    for (const auto& [name, value] : solved.items()) line.solved.add(value.get<double>());
    if (memory) line.memory.add(*memory);
  }

  VaryingParams params_;
  std::vector<Line> lines_;
  std::map<std::string, std::size_t> find_;
};

std::string time_text(double seconds) {
  return seconds < 10.0 ? fmt::format("{:.2g} s", seconds) : duration_text(seconds);
}

}  // namespace

PlanReport::PlanReport(const Plan& plan, const ShardSelection& selection, const CostEstimate& cost,
                       int threads)
    : plan_(plan), selection_(selection), cost_(cost), threads_(threads) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!selection.groups[g]) continue;
    Group group{.index = g, .bytes = estimate_memory_bytes(plan, plan.groups[g], threads)};
    plan.cells.for_each_setting(plan.groups[g].cells,
                                [&](const PlannedCell& cell, std::size_t count) {
                                  if (!selection.has(cell)) return;
                                  group.cells += count;
                                  group.skipped += cell.skip_reason ? count : 0;
                                });
    const std::vector<double> work = head_multiply_adds(plan, plan.groups[g]);
    for (std::size_t h = 0; h < work.size(); ++h) {
      if (selection.heads[g][h]) group.multiply_adds += work[h];
    }
    multiply_adds_ += group.multiply_adds;
    skipped_ += group.skipped;
    layer_records_ += plan.groups[g].layer_records.size();
    groups_.push_back(group);
  }
  bytes_ = estimate_peak_bytes(plan, selection.groups, threads);
  skips_ = skips_of(plan, selection);
}

Json PlanReport::json_without_cells() const {
  Json groups = Json::array();
  for (const Group& each : groups_) {
    const WorkGroup& group = plan_.groups[each.index];
    groups.push_back({{"dump", plan_.dumps[group.dump].path},
                      {"sequence", group.sequence},
                      {"layer", group.layer},
                      {"tokens", group.shape.tokens},
                      {"prompt_tokens", group.prompt},
                      {"rows", group.rows.size()},
                      {"cells", each.cells},
                      {"skipped", each.skipped},
                      {"memory_bytes", static_cast<std::int64_t>(each.bytes)},
                      {"seconds", cost_.seconds[each.index]},
                      {"multiply_adds", each.multiply_adds}});
  }
  Json document = {{"name", plan_.name},
                   {"hash", plan_.hash},
                   {"device", plan_.device},
                   {"shard", selection_.shard.text()},
                   {"cells", selection_.cells},
                   {"skipped", skipped_},
                   {"layer_records", layer_records_},
                   {"memory_bytes", static_cast<std::int64_t>(bytes_)},
                   {"cost",
                    {{"seconds", cost_.total()},
                     {"threads", threads_},
                     {"timed_cells", cost_.cells},
                     {"unknown_cells", cost_.unknown_cells},
                     {"multiply_adds", multiply_adds_}}},
                   {"groups", std::move(groups)}};
  if (cost_.dump_bytes > 0.0) {
    document["dump_bytes"] = static_cast<std::int64_t>(cost_.dump_bytes);
  }
  document["skips"] = Json::array();
  for (const Skip& skip : skips_) {
    document["skips"].push_back(
        {{"reason", skip.reason}, {"cells", skip.cells}, {"labels", skip.labels}});
  }
  document["config"] = plan_.config;
  return document;
}

void PlanReport::write_json(const std::function<void(std::string_view)>& write) const {
  std::string text = indented(json_without_cells(), 1);
  text.resize(text.size() - std::string_view("\n}").size());
  write(text + ",\n \"cell_list\": [");
  const char* separator = "\n  ";
  KnownMemory known(plan_);
  for (const PlannedCell& cell : plan_.cells) {
    if (!selection_.has(cell)) continue;
    Json entry = {{"id", cell.id.text()}, {"path", cell_path(plan_, cell)}};
    entry["seed"] = cell.seed ? Json(*cell.seed) : Json(nullptr);
    const Json solved = solved_tokens(cell);
    if (!solved.empty()) entry["solved"] = solved;
    if (const auto memory = known.of(cell)) entry["memory_fraction"] = *memory;
    if (cell.skip_reason) entry["skip_reason"] = *cell.skip_reason;
    write(std::exchange(separator, ",\n  ") + to_line(entry));
  }
  write("\n ]\n}\n");
}

std::string PlanReport::table(std::size_t columns) const {
  std::string out =
      fmt::format("{}{}: {} cells in {} groups, {} skipped\n", plan_.name,
                  selection_.shard.is_whole() ? "" : ", shard " + selection_.shard.text(),
                  selection_.cells, groups_.size(), skipped_);
  if (cost_.dump_bytes > 0.0) {
    out +=
        fmt::format("dump: about {} on disk, with 2 bytes a number and the queries of all tokens\n",
                    bytes_text(cost_.dump_bytes));
  }
  if (layer_records_ > 0) {
    out += fmt::format("records of whole layers: {}\n", layer_records_);
  }
  out += paragraph(
      fmt::format("memory: about {}; time: about {} on {} threads, estimated from {} timed cells{}",
                  bytes_text(bytes_), time_text(cost_.total()), threads_, cost_.cells,
                  cost_.unknown_cells == 0
                      ? ""
                      : fmt::format(", without {} cells whose time is unknown: they cannot be "
                                    "replayed on a short part of the sequence, or not within the "
                                    "memory limit",
                                    cost_.unknown_cells)),
      columns);
  out += "\n";
  Table groups({{"sequence", Align::kLeft, 12},
                {"layer", Align::kRight, 5},
                {"tokens", Align::kRight, 8, 4},
                {"prompt", Align::kRight, 8, 2},
                {"rows", Align::kRight, 6, 1},
                {"cells", Align::kRight, 8},
                {"skipped", Align::kRight, 8, 3},
                {"RAM", Align::kRight, 10, 5},
                {"time", Align::kRight, 12}},
               " ");
  for (const Group& each : groups_) {
    const WorkGroup& group = plan_.groups[each.index];
    groups.add({group.sequence, std::to_string(group.layer), std::to_string(group.shape.tokens),
                std::to_string(group.prompt), std::to_string(group.rows.size()),
                std::to_string(each.cells), std::to_string(each.skipped),
                bytes_text(std::floor(each.bytes)), time_text(cost_.seconds[each.index])});
  }
  struct Counts {
    std::size_t all = 0;
    std::size_t skipped = 0;
  };
  std::map<std::string, Counts> cells_of;
  std::vector<std::string> in_order;
  for_each_setting(plan_, selection_, [&](const PlannedCell& cell, std::size_t count) {
    Counts& cells = cells_of[*cell.label];
    if (cells.all == 0) in_order.push_back(*cell.label);
    cells.all += count;
    if (cell.skip_reason) cells.skipped += count;
  });
  Table labels(
      {{"label", Align::kLeft, 24}, {"cells", Align::kRight, 8}, {"skipped", Align::kRight, 8}},
      " ");
  for (const std::string& label : in_order) {
    const Counts& cells = cells_of[label];
    labels.add({label, std::to_string(cells.all), std::to_string(cells.skipped)});
  }
  out += groups.text(columns) + "\n" + labels.text(columns) +
         SettingMemory(plan_, selection_).table(columns);
  if (skips_.empty()) return out;
  Table skips({{"", Align::kRight, 8}, {"", Align::kLeft}});
  for (const Skip& skip : skips_) {
    skips.add({std::to_string(skip.cells), labels_text(skip.labels) + ": " + skip.reason});
  }
  return out + "\nskipped:\n" + skips.text(columns);
}

}  // namespace kvbench
