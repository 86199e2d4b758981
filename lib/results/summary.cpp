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

constexpr std::size_t kBlock = 512;    // entries that are computed and written at a time
constexpr std::size_t kMany = 20'000;  // records of an entry that is made alone, not beside others

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

std::size_t layer_metric_count() { return layer_error_paths().size() + 1; }

// The same of a record of a whole layer: errors, then the heads that lost the evidence.
std::vector<double> layer_metrics_of(const Json& record) {
  std::vector<double> values;
  for (const std::string& path : layer_error_paths()) {
    values.push_back(number_at(record.at("errors"), path));
  }
  values.push_back(number_at(record.value("evidence", Json()), "heads_lost"));
  return values;
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
Json errors_of(SummarySlice& slice, const std::vector<std::string>& names,
               const IndependentGroups& groups) {
  Json out;
  for (std::size_t m = 0; m < names.size(); ++m) {
    Json& metric = out[names[m]];
    const std::vector<double> means = slice.unit_means(m);
    const std::optional<double> mean = mean_of(means);
    if (!mean) {
      metric = nullptr;
      continue;
    }
    metric["mean"] = *mean;
    metric["std_over_seeds"] = slice.deviation_over_seeds(m).value();
    metric["ci95"] = nullptr;
    if (const auto interval = mean_interval(means, groups)) {
      metric["ci95"] = {interval->low, interval->high};
    }
  }
  return out;
}

// Of metrics that are summarised by their means alone, from number `first` on.
Json means_of(SummarySlice& slice, const std::vector<std::string>& names, std::size_t first) {
  Json out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto mean = mean_of(slice.unit_means(first + i));
    out[names[i]] = mean ? Json(*mean) : Json(nullptr);
  }
  return out;
}

}  // namespace

struct Summary::Entry {
  const std::string* head = nullptr;  // a line of JSON: algorithm, label, params, storage, tokens
  SummarySlice::Layers cells;
  SummarySlice::Layers whole_layers;
};

namespace {

Json groups_json(const IndependentGroups& groups) {
  if (groups.count < 2) return nullptr;
  return {{"level", level_name(groups.level)}, {"groups", groups.count}};
}

Json layers_json(SummarySlice& slice) {
  const IndependentGroups groups = independent_groups(slice.units());
  return {{"records", slice.ok()},
          {"failed", slice.failed()},
          {"ci95_over", groups_json(groups)},
          {"errors", errors_of(slice, layer_error_paths(), groups)},
          {"evidence", means_of(slice, {"heads_lost"}, layer_error_paths().size())}};
}

Json entry_json(Json head, std::optional<int> layer, SummarySlice slice, SummarySlice layers) {
  const IndependentGroups groups = independent_groups(slice.units());
  Json out = std::move(head);
  out["layer"] = layer ? Json(*layer) : Json(nullptr);
  out["cells"] = slice.ok();
  out["failed"] = slice.failed();
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
  if (layers.ok() + layers.failed() > 0) out["layers"] = layers_json(layers);
  return out;
}

// Of one layer, or of all.
std::size_t records_of(const SummarySlice::Layers& layers, std::optional<int> wanted) {
  std::size_t records = 0;
  for (const auto& [index, layer] : layers) {
    if (!wanted || index == *wanted) records += layer.rows.size();
  }
  return records;
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

Summary::Summary(bool by_tokens, const std::string& folder)
    : by_tokens_(by_tokens),
      cells_(metric_count(), error_paths().size(), folder),
      whole_layers_(layer_metric_count(), layer_error_paths().size(), folder) {}
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
  const int index = key.at("layer").get<int>();
  SummaryLayer& layer = (is_layer ? entry.whole_layers : entry.cells)[index];
  if (status != "ok") {
    ++layer.failed;
    return;
  }
  ++layer.ok;
  const std::string unit =
      to_line({key.at("dump"), key.at("sequence"), key.at("layer"), key.value("kv_head", Json())});
  const auto [number, unit_is_new] = find_unit_.try_emplace(unit, units_.size());
  if (unit_is_new) {
    const std::string text = to_line({key.at("dump"), key.at("sequence")});
    const Index text_number =
        find_text_.try_emplace(text, static_cast<Index>(find_text_.size())).first->second;
    units_.push_back({text_number, index});
  }
  const Json& seed = key.at("seed");
  layer.rows.push_back(
      (is_layer ? whole_layers_ : cells_)
          .add(static_cast<std::uint32_t>(number->second),
               seed.is_null() ? std::nullopt : std::optional(seed.get<std::uint64_t>()),
               is_layer ? layer_metrics_of(record) : metrics_of(record)));
}

std::vector<Summary::Job> Summary::jobs() const {
  std::vector<Job> all;
  for (const Entry& entry : entries_) {
    all.push_back({&entry, std::nullopt});
    for (const auto& [index, layer] : entry.cells) all.push_back({&entry, index});
  }
  return all;
}

void Summary::each(const std::function<void(std::string_view)>& line) const {
  const std::vector<Job> all = jobs();
  for (std::size_t first = 0; first < all.size(); first += kBlock) {
    std::vector<std::string> lines(std::min(kBlock, all.size() - first));
    const auto make = [&](std::size_t i) {
      const Job& job = all[first + i];
      lines[i] = to_line(
          entry_json(Json::parse(*job.entry->head), job.layer,
                     SummarySlice(cells_, job.entry->cells, job.layer, units_),
                     SummarySlice(whole_layers_, job.entry->whole_layers, job.layer, units_)));
    };
    std::vector<std::size_t> beside;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Job& job = all[first + i];
      if (records_of(job.entry->cells, job.layer) > kMany) {
        make(i);
      } else {
        beside.push_back(i);
      }
    }
    parallel_for(static_cast<Index>(beside.size()),
                 [&](Index index) { make(beside[static_cast<std::size_t>(index)]); });
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
    SummarySlice slice(cells_, entry.cells, std::nullopt, units_);
    if (slice.units().empty()) continue;
    const Json head = Json::parse(*entry.head);
    const auto tokens = head.find("tokens");
    all.push_back({head.at("algorithm"), head.at("label"), to_line(head.at("params")),
                   tokens == head.end() ? std::nullopt : std::optional(tokens->get<Index>()),
                   mean_of(slice.unit_means(error)), mean_of(slice.unit_means(fraction))});
  }
  return all;
}

// As measured, with what the allocator adds (tests/cli/memory_test.py holds runs to it).
double Summary::setting_bytes() { return 1400.0; }
double Summary::record_bytes() { return 20.0; }

double Summary::rows_bytes(double cells, double layers) {
  const auto held = [](double records, std::size_t metrics) {
    return std::min(records * SummaryRows::bytes(metrics), RecordStore::most_bytes());
  };
  return held(cells, metric_count()) + held(layers, layer_metric_count());
}

double Summary::entry_bytes(double units, double seeds, double records) {
  const double one =
      SummarySlice::bytes(static_cast<double>(metric_count()), units, seeds, records);
  return records > static_cast<double>(kMany) ? one : one * static_cast<double>(thread_count());
}

}  // namespace kvbench
