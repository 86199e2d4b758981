#include "results/summary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/parallel.hpp"
#include "results/layer_record.hpp"
#include "results/mean_interval.hpp"
#include "results/record.hpp"

namespace kvbench {
namespace {

// Sums of every metric over some cells, and how many cells had it.
struct Sums {
  std::vector<double> sum;
  std::vector<std::uint32_t> count;

  explicit Sums(std::size_t metrics) : sum(metrics, 0.0), count(metrics, 0) {}

  void add(const std::vector<double>& values) {
    for (std::size_t m = 0; m < values.size(); ++m) {
      if (std::isnan(values[m])) continue;
      sum[m] += values[m];
      ++count[m];
    }
  }
  void add(const Sums& other) {
    for (std::size_t m = 0; m < sum.size(); ++m) {
      sum[m] += other.sum[m];
      count[m] += other.count[m];
    }
  }
  std::optional<double> mean(std::size_t m) const {
    if (count[m] == 0) return std::nullopt;
    return sum[m] / static_cast<double>(count[m]);
  }
};

constexpr std::size_t kBlock = 512;  // entries that are computed and written at a time

using SeedKey = std::string;

struct Unit {
  UnitNesting nesting;
  Sums sums;
};

struct Layer {
  Index ok = 0;
  Index failed = 0;
  std::map<SeedKey, Sums> seeds;
};

std::size_t metric_count() {
  return error_paths().size() + memory_names().size() + traffic_paths().size() +
         summarised_trivial_paths().size() + evidence_paths().size();
}

// NaN where there is none.
double number_at(const Json& object, const std::string& path) {
  if (!object.is_object()) return NAN;
  const std::size_t dot = path.find('.');
  const auto outer = object.find(path.substr(0, dot));
  if (outer == object.end()) return NAN;
  if (dot == std::string::npos) return outer->is_number() ? outer->get<double>() : NAN;
  return number_at(*outer, path.substr(dot + 1));
}

// All metrics of a record, NaN if null: errors, then memory, traffic, trivial answers, evidence.
std::vector<double> metrics_of(const Json& record) {
  std::vector<double> values;
  values.reserve(metric_count());
  for (const std::string& path : error_paths()) {
    values.push_back(number_at(record.at("errors"), path));
  }
  for (const std::string& name : memory_names()) {
    values.push_back(number_at(record.at("memory"), name));
  }
  const Json traffic = record.value("traffic", Json());  // null before version 1.4.0
  for (const std::string& path : traffic_paths()) values.push_back(number_at(traffic, path));
  const Json trivial = record.value("trivial", Json());  // null before version 1.2.0
  for (const std::string& path : summarised_trivial_paths()) {
    values.push_back(number_at(trivial, path));
  }
  const Json evidence = record.value("evidence", Json());
  for (const std::string& path : evidence_paths()) values.push_back(number_at(evidence, path));
  return values;
}

// The same of a record of a whole layer: errors, then the heads that lost the evidence.
std::vector<double> layer_metrics_of(const Json& record) {
  std::vector<double> values;
  for (const std::string& path : layer_error_paths()) {
    values.push_back(number_at(record.at("errors"), path));
  }
  values.push_back(number_at(record.value("evidence", Json()), "heads_lost"));
  return values;
}

// What one entry of the summary is made of: the units and seeds of one layer, or of all.
struct Slice {
  std::vector<const Unit*> units;
  std::map<SeedKey, Sums> seeds;
  Index ok = 0;
  Index failed = 0;
};

// Per unit, NaN where it has none.
std::vector<double> unit_means(const Slice& slice, std::size_t metric) {
  std::vector<double> means;
  means.reserve(slice.units.size());
  for (const Unit* unit : slice.units) means.push_back(unit->sums.mean(metric).value_or(NAN));
  return means;
}

std::optional<double> deviation_over_seeds(const Slice& slice, std::size_t metric) {
  std::vector<double> means;
  for (const auto& [seed, sums] : slice.seeds) {
    if (const auto mean = sums.mean(metric)) means.push_back(*mean);
  }
  if (means.empty()) return std::nullopt;
  double center = 0.0;
  for (const double mean : means) center += mean;
  center /= static_cast<double>(means.size());
  double squares = 0.0;
  for (const double mean : means) squares += (mean - center) * (mean - center);
  return std::sqrt(squares / static_cast<double>(means.size()));
}

std::optional<double> mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  Index count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

// Of metrics that are summarised with intervals, the first ones.
Json errors_of(const Slice& slice, const std::vector<std::string>& names,
               const IndependentGroups& groups) {
  Json out;
  for (std::size_t m = 0; m < names.size(); ++m) {
    Json& metric = out[names[m]];
    const std::vector<double> means = unit_means(slice, m);
    const std::optional<double> mean = mean_of(means);
    if (!mean) {
      metric = nullptr;
      continue;
    }
    metric["mean"] = *mean;
    metric["std_over_seeds"] = deviation_over_seeds(slice, m).value();
    metric["ci95"] = nullptr;
    if (const auto interval = mean_interval(means, groups)) {
      metric["ci95"] = {interval->low, interval->high};
    }
  }
  return out;
}

// Of metrics that are summarised by their means alone, from number `first` on.
Json means_of(const Slice& slice, const std::vector<std::string>& names, std::size_t first) {
  Json out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto mean = mean_of(unit_means(slice, first + i));
    out[names[i]] = mean ? Json(*mean) : Json(nullptr);
  }
  return out;
}

}  // namespace

namespace {

// The records of one setting: of cells, or of whole layers.
struct Collected {
  std::vector<Unit> units;
  std::map<std::size_t, std::size_t> find_unit;  // number of the unit -> place
  std::map<int, Layer> layers;

  std::vector<const Unit*> units_of(std::optional<int> wanted) const {
    std::vector<const Unit*> out;
    for (const Unit& unit : units) {
      if (!wanted || unit.nesting.layer == *wanted) out.push_back(&unit);
    }
    return out;
  }

  Slice slice(std::optional<int> wanted) const {
    Slice out;
    out.units = units_of(wanted);
    for (const auto& [index, layer] : layers) {
      if (wanted && index != *wanted) continue;
      out.ok += layer.ok;
      out.failed += layer.failed;
      for (const auto& [seed, sums] : layer.seeds) {
        out.seeds.try_emplace(seed, sums.sum.size()).first->second.add(sums);
      }
    }
    return out;
  }
};

}  // namespace

struct Summary::Entry {
  const std::string* head = nullptr;  // a line of JSON: algorithm, label, params, storage, tokens
  Collected cells;
  Collected whole_layers;
};

namespace {

IndependentGroups groups_of(const Slice& slice) {
  std::vector<UnitNesting> nesting;
  for (const Unit* unit : slice.units) nesting.push_back(unit->nesting);
  return independent_groups(nesting);
}

Json groups_json(const IndependentGroups& groups) {
  if (groups.count < 2) return nullptr;
  return {{"level", level_name(groups.level)}, {"groups", groups.count}};
}

Json layers_json(const Slice& slice) {
  const IndependentGroups groups = groups_of(slice);
  return {{"records", slice.ok},
          {"failed", slice.failed},
          {"ci95_over", groups_json(groups)},
          {"errors", errors_of(slice, layer_error_paths(), groups)},
          {"evidence", means_of(slice, {"heads_lost"}, layer_error_paths().size())}};
}

Json entry_json(Json head, std::optional<int> layer, const Slice& slice, const Slice& layers) {
  const IndependentGroups groups = groups_of(slice);
  Json out = std::move(head);
  out["layer"] = layer ? Json(*layer) : Json(nullptr);
  out["cells"] = slice.ok;
  out["failed"] = slice.failed;
  out["ci95_over"] = groups_json(groups);
  out["errors"] = errors_of(slice, error_paths(), groups);
  const std::size_t memory = error_paths().size();
  const std::size_t traffic = memory + memory_names().size();
  const std::size_t trivial = traffic + traffic_paths().size();
  out["trivial"] = means_of(slice, summarised_trivial_paths(), trivial);
  out["memory"] = means_of(slice, memory_names(), memory);
  out["traffic"] = means_of(slice, traffic_paths(), traffic);
  const std::size_t evidence = trivial + summarised_trivial_paths().size();
  Json of_evidence = means_of(slice, evidence_paths(), evidence);
  if (!of_evidence["held"].is_null()) out["evidence"] = std::move(of_evidence);
  if (layers.ok + layers.failed > 0) out["layers"] = layers_json(layers);
  return out;
}

std::optional<double> mean_over(const std::vector<const Unit*>& units, std::size_t metric) {
  Slice slice;
  slice.units = units;
  return mean_of(unit_means(slice, metric));
}

std::size_t place_in(const std::vector<std::string>& names, const char* name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

}  // namespace

const std::vector<std::string>& summarised_trivial_paths() {
  static const std::vector<std::string> paths = {"kappa.median",
                                                 "zero.epsilon_spectral.mean",
                                                 "zero.epsilon_frobenius.mean",
                                                 "mean_value.relative_l2.mean",
                                                 "mean_value.epsilon_spectral.mean",
                                                 "mean_value.epsilon_frobenius.mean"};
  return paths;
}

Summary::Summary(bool by_tokens) : by_tokens_(by_tokens) {}
Summary::~Summary() = default;

void Summary::add(const Json& record) { collect(record, false); }

void Summary::add_layer(const Json& record) { collect(record, true); }

void Summary::collect(const Json& record, bool is_layer) {
  const std::string& status = record.at("status").get_ref<const std::string&>();
  if (status == "skipped") return;
  const Json& key = record.at("key");
  Json head = {{"algorithm", key.at("algorithm")},
               {"label", record.at("label")},
               {"params", key.at("params")}};
  if (key.contains("storage")) head["storage"] = key["storage"];
  if (by_tokens_) head["tokens"] = key.at("tokens");
  const auto [place, is_new] = find_.try_emplace(to_line(head), entries_.size());
  if (is_new) {
    entries_.emplace_back();
    entries_.back().head = &place->first;
  }
  Entry& entry = entries_[place->second];
  Collected& collected = is_layer ? entry.whole_layers : entry.cells;
  const int index = key.at("layer").get<int>();
  Layer& layer = collected.layers[index];
  if (status != "ok") {
    ++layer.failed;
    return;
  }
  ++layer.ok;
  const std::vector<double> values = is_layer ? layer_metrics_of(record) : metrics_of(record);
  const std::string unit =
      to_line({key.at("dump"), key.at("sequence"), key.at("layer"), key.value("kv_head", Json())});
  const std::size_t number = units_.try_emplace(unit, units_.size()).first->second;
  const auto [where, unit_is_new] = collected.find_unit.try_emplace(number, collected.units.size());
  if (unit_is_new) {
    const std::string text = to_line({key.at("dump"), key.at("sequence")});
    const Index text_number =
        find_text_.try_emplace(text, static_cast<Index>(find_text_.size())).first->second;
    collected.units.push_back({{text_number, index}, Sums(values.size())});
  }
  collected.units[where->second].sums.add(values);
  layer.seeds.try_emplace(to_line(key.at("seed")), values.size()).first->second.add(values);
}

std::vector<Summary::Job> Summary::jobs() const {
  std::vector<Job> all;
  for (const Entry& entry : entries_) {
    all.push_back({&entry, std::nullopt});
    for (const auto& [index, layer] : entry.cells.layers) all.push_back({&entry, index});
  }
  return all;
}

void Summary::each(const std::function<void(std::string_view)>& line) const {
  const std::vector<Job> all = jobs();
  for (std::size_t first = 0; first < all.size(); first += kBlock) {
    std::vector<std::string> lines(std::min(kBlock, all.size() - first));
    parallel_for(static_cast<Index>(lines.size()), [&](Index index) {
      const auto i = static_cast<std::size_t>(index);
      const Job& job = all[first + i];
      lines[i] = to_line(entry_json(Json::parse(*job.entry->head), job.layer,
                                    job.entry->cells.slice(job.layer),
                                    job.entry->whole_layers.slice(job.layer)));
    });
    for (const std::string& each : lines) line(each);
  }
}

Json Summary::json() const {
  Json all = Json::array();
  each([&](std::string_view line) { all.push_back(Json::parse(line)); });
  return all;
}

std::vector<SettingMeans> Summary::means() const {
  const std::size_t error = place_in(error_paths(), "relative_l2.mean");
  const std::size_t fraction = error_paths().size() + place_in(memory_names(), "fraction");
  std::vector<SettingMeans> all;
  for (const Entry& entry : entries_) {
    if (entry.cells.units.empty()) continue;
    const Json head = Json::parse(*entry.head);
    const std::vector<const Unit*> units = entry.cells.units_of(std::nullopt);
    const auto tokens = head.find("tokens");
    all.push_back({head.at("algorithm"), head.at("label"), to_line(head.at("params")),
                   tokens == head.end() ? std::nullopt : std::optional(tokens->get<Index>()),
                   mean_over(units, error), mean_over(units, fraction)});
  }
  return all;
}

// As measured, with what the allocator adds (tests/cli/memory_test.py holds runs to it).
double Summary::setting_bytes() { return 1400.0; }
double Summary::unit_bytes() { return 160.0 + 12.0 * static_cast<double>(metric_count()); }
double Summary::layer_unit_bytes() {
  return 160.0 + 12.0 * static_cast<double>(layer_error_paths().size() + 1);
}
double Summary::layer_seed_bytes() {
  return 200.0 + 12.0 * static_cast<double>(layer_error_paths().size() + 1);
}
double Summary::seed_bytes() { return 200.0 + 12.0 * static_cast<double>(metric_count()); }
}  // namespace kvbench
