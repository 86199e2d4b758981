#include "results/summary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "results/layer_record.hpp"
#include "results/mean_interval.hpp"
#include "results/record.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kBlock = 512;    // entries that are computed and written at a time
constexpr std::size_t kMany = 20'000;  // records of an entry that is made alone, not next to others

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
  return sum / count;
}

Index count_undefined(const std::vector<double>& values) {
  return std::count_if(values.begin(), values.end(),
                       [](double value) { return std::isnan(value); });
}

// Summaries with intervals, of the first metrics.
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
    const auto deviation = slice.deviation_over_seeds(m);
    metric["std_over_seeds"] = deviation ? Json(*deviation) : Json(nullptr);
    metric["ci95"] = nullptr;
    if (const auto interval = positive_mean_interval(means, groups)) {
      metric["ci95"] = {interval->low, interval->high};
    }
    const Index undefined = count_undefined(means);
    if (undefined > 0) metric["units"] = std::ssize(means) - undefined;
  }
  return out;
}

// Means of the metrics from number `first` on, which are summarised by means alone.
Json means_of(SummarySlice& slice, const std::vector<std::string>& names, std::size_t first) {
  Json out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto mean = mean_of(slice.unit_means(first + i));
    out[names[i]] = mean ? Json(*mean) : Json(nullptr);
  }
  return out;
}

std::size_t place_in(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) - names.begin();
}

// Bytes over bytes of the units of a slice that `counts` is true for: a mean of the units' shares
// would weigh a window of 32 tokens as a cache of thousands. `bytes`, `exact`: numbers of metrics.
template <class Counts>
std::optional<double> share_of(const std::vector<double>& bytes, const std::vector<double>& exact,
                               const Counts& counts) {
  double sum_bytes = 0.0;
  double sum_exact = 0.0;
  for (std::size_t u = 0; u < bytes.size(); ++u) {
    if (!counts(u) || std::isnan(bytes[u]) || std::isnan(exact[u])) continue;
    sum_bytes += bytes[u];
    sum_exact += exact[u];
  }
  if (!(sum_exact > 0.0)) return std::nullopt;
  return sum_bytes / sum_exact;
}

template <class Counts>
std::optional<double> memory_fraction(SummarySlice& slice, const Counts& counts) {
  const std::size_t first = error_paths().size();
  return share_of(slice.unit_means(first + place_in(memory_names(), "peak_bytes")),
                  slice.unit_means(first + place_in(memory_names(), "exact_bytes")), counts);
}

// A record has no bytes that exact attention reads: its own bytes over its fraction are.
template <class Counts>
std::optional<double> traffic_fraction(SummarySlice& slice, const Counts& counts) {
  const std::size_t first = error_paths().size() + memory_names().size();
  const auto bytes = slice.unit_means(first + place_in(traffic_paths(), "bytes_read.mean"));
  auto exact = slice.unit_means(first + place_in(traffic_paths(), "fraction"));
  for (std::size_t u = 0; u < exact.size(); ++u) exact[u] = bytes[u] / exact[u];
  return share_of(bytes, exact, counts);
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
          {"skipped", slice.skipped()},
          {"units", slice.units().size()},
          {"units_asked", slice.asked()},
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
  out["skipped"] = slice.skipped();
  out["units"] = slice.units().size();
  out["units_asked"] = slice.asked();
  out["ci95_over"] = groups_json(groups);
  out["errors"] = errors_of(slice, error_paths(), groups);
  const std::size_t memory = error_paths().size();
  const std::size_t traffic = memory + memory_names().size();
  const std::size_t trivial = traffic + traffic_paths().size();
  out["trivial"] = means_of(slice, summarised_trivial_paths(), trivial);
  out["memory"] = means_of(slice, memory_names(), memory);
  const auto every = [](std::size_t) { return true; };
  const auto share = [](std::optional<double> part) { return part ? Json(*part) : Json(nullptr); };
  out["memory"]["fraction"] = share(memory_fraction(slice, every));
  out["traffic"] = means_of(slice, traffic_paths(), traffic);
  out["traffic"]["fraction"] = share(traffic_fraction(slice, every));
  const std::size_t evidence = trivial + summarised_trivial_paths().size();
  Json of_evidence = means_of(slice, evidence_paths(), evidence);
  if (!of_evidence["held"].is_null()) out["evidence"] = std::move(of_evidence);
  if (layers.ok() + layers.failed() > 0) out["layers"] = layers_json(layers);
  return out;
}

// Number of records of one layer, or of all.
std::size_t records_of(const SummarySlice::Layers& layers, std::optional<int> wanted) {
  std::size_t records = 0;
  for (const auto& [index, layer] : layers) {
    if (!wanted || index == *wanted) records += layer.rows.size();
  }
  return records;
}

// The units that settings are compared over, by number; none where nothing is in common. `has`: the
// units of each setting.
std::vector<bool> common_units(const std::vector<SettingMeans>& settings,
                               const std::vector<std::vector<bool>>& has) {
  const auto both = [](std::vector<bool>& into, const std::vector<bool>& other) {
    if (into.empty()) into = other;
    for (std::size_t u = 0; u < into.size(); ++u) into[u] = into[u] && other[u];
  };
  std::vector<bool> of_all;
  std::map<std::string, std::vector<bool>> of_method;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (settings[i].units == 0) continue;
    both(of_all, has[i]);
    std::vector<bool>& method = of_method.try_emplace(settings[i].method(), has[i]).first->second;
    for (std::size_t u = 0; u < method.size(); ++u) method[u] = method[u] || has[i][u];
  }
  if (std::find(of_all.begin(), of_all.end(), true) != of_all.end()) return of_all;
  std::vector<bool> of_methods;
  for (const auto& [name, units] : of_method) both(of_methods, units);
  return of_methods;
}

bool is_within(const std::vector<bool>& units, const std::vector<bool>& of) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u] && !of[u]) return false;
  }
  return true;
}

SettingMeans named_setting(const std::string& head_line) {
  const Json head = parse_line(head_line);
  SettingMeans setting;
  setting.algorithm = head.at("algorithm");
  setting.label = head.at("label");
  setting.params = to_line(head.at("params"));
  const auto tokens = head.find("tokens");
  if (tokens != head.end()) setting.tokens = tokens->get<Index>();
  return setting;
}

// Fills in the means over the units of `common`, all of which the slice has.
IndependentGroups add_means(SummarySlice& slice, const std::vector<bool>& common,
                            SettingMeans& setting) {
  const auto counts = [&](std::size_t u) { return common[slice.numbers()[u]]; };
  std::vector<UnitNesting> nesting;
  for (std::size_t u = 0; u < slice.units().size(); ++u) {
    if (counts(u)) nesting.push_back(slice.units()[u]);
  }
  IndependentGroups groups = independent_groups(nesting);
  const auto compared_values = [&](std::size_t metric) {
    const std::vector<double> all = slice.unit_means(metric);
    std::vector<double> values;
    for (std::size_t u = 0; u < all.size(); ++u) {
      if (counts(u)) values.push_back(all[u]);
    }
    return values;
  };
  for (const auto& [name, into] : {std::pair{"relative_frobenius_error", &setting.frobenius},
                                   std::pair{"relative_spectral_error", &setting.spectral},
                                   std::pair{"relative_l2.mean", &setting.l2}}) {
    const std::vector<double> values = compared_values(place_in(error_paths(), name));
    into->undefined = count_undefined(values);
    if (into->undefined > 0) continue;
    into->mean = mean_of(values);
    into->interval = positive_mean_interval(values, groups);
  }
  setting.memory_fraction = memory_fraction(slice, counts);
  const std::vector<double> traffic = compared_values(error_paths().size() + memory_names().size() +
                                                      place_in(traffic_paths(), "fraction"));
  if (count_undefined(traffic) == 0) setting.traffic_fraction = traffic_fraction(slice, counts);
  return groups;
}

}  // namespace

std::string SettingMeans::method() const {
  return to_line({algorithm, label, tokens ? Json(*tokens) : Json(nullptr)});
}

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

// The number of the unit of a record.
std::uint32_t Summary::unit_of(const Json& key) {
  const std::string unit =
      to_line({key.at("dump"), key.at("sequence"), key.at("layer"), key.value("kv_head", Json())});
  const auto [number, is_new] = find_unit_.try_emplace(unit, units_.size());
  if (is_new) {
    const std::string text = to_line({key.at("dump"), key.at("sequence")});
    const Index text_number = find_text_.try_emplace(text, std::ssize(find_text_)).first->second;
    units_.push_back({text_number, key.at("layer").get<int>()});
  }
  return static_cast<std::uint32_t>(number->second);
}

void Summary::collect(const Json& record, bool is_layer) {
  const std::string& status = record.at("status").get_ref<const std::string&>();
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
  SummaryLayer& layer = (is_layer ? entry.whole_layers : entry.cells)[key.at("layer").get<int>()];
  const std::uint32_t unit = unit_of(key);
  if (status != "ok") {
    ++(status == "skipped" ? layer.skipped : layer.failed);
    if (layer.lacking.empty() || layer.lacking.back() != unit) layer.lacking.push_back(unit);
    return;
  }
  ++layer.ok;
  const Json& seed = key.at("seed");
  layer.rows.push_back(
      (is_layer ? whole_layers_ : cells_)
          .add(unit, seed.is_null() ? std::nullopt : std::optional(seed.get<std::uint64_t>()),
               is_layer ? layer_metrics_of(record) : metrics_of(record)));
}

std::vector<Summary::Job> Summary::jobs() const {
  const auto has_more_than_skipped = [](const auto& layer) {
    return layer.second.ok + layer.second.failed > 0;
  };
  std::vector<Job> all;
  for (const Entry& entry : entries_) {
    if (std::none_of(entry.cells.begin(), entry.cells.end(), has_more_than_skipped)) continue;
    all.push_back({&entry, std::nullopt});
    for (const auto& layer : entry.cells) {
      if (has_more_than_skipped(layer)) all.push_back({&entry, layer.first});
    }
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
          entry_json(parse_line(*job.entry->head), job.layer,
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
    parallel_for(std::ssize(beside), [&](Index index) { make(beside[index]); });
    for (const std::string& each : lines) line(each);
  }
}

Json Summary::json() const {
  Json all = Json::array();
  each([&](std::string_view line) { all.push_back(parse_line(line)); });
  return all;
}

ComparedSettings Summary::compared() const {
  ComparedSettings out;
  std::vector<bool> asked(units_.size(), false);
  std::vector<std::vector<bool>> has;
  const auto slice_of = [&](std::size_t i) {
    return SummarySlice(cells_, entries_[i].cells, std::nullopt, units_);
  };
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const SummarySlice slice = slice_of(i);
    SettingMeans& setting = out.settings.emplace_back(named_setting(*entries_[i].head));
    setting.units = std::ssize(slice.units());
    setting.asked = slice.asked();
    std::vector<bool>& own = has.emplace_back(units_.size(), false);
    for (const std::uint32_t unit : slice.numbers()) own[unit] = asked[unit] = true;
    for (const std::uint32_t unit : slice.lacking()) asked[unit] = true;
  }
  out.asked = std::count(asked.begin(), asked.end(), true);
  const std::vector<bool> common = common_units(out.settings, has);
  out.units = std::count(common.begin(), common.end(), true);
  for (std::size_t i = 0; i < entries_.size() && out.units > 0; ++i) {
    SettingMeans& setting = out.settings[i];
    setting.is_compared = setting.units > 0 && is_within(common, has[i]);
    if (!setting.is_compared) continue;
    SummarySlice slice = slice_of(i);
    const IndependentGroups groups = add_means(slice, common, setting);
    out.over = groups.level;
    out.groups = groups.count;
  }
  return out;
}

// As measured, with what the allocator adds (tests/cli/memory_test.py holds runs to it).
double Summary::setting_bytes() { return 1700.0; }
double Summary::record_bytes() { return 20.0; }
double Summary::lacking_bytes() { return 8.0; }

double Summary::rows_bytes(double cells, double layers) {
  const auto held = [](double records, std::size_t metrics) {
    return std::min(records * SummaryRows::bytes(metrics), RecordStore::most_bytes());
  };
  return held(cells, metric_count()) + held(layers, layer_metric_count());
}

double Summary::entry_bytes(double units, double seeds, double records) {
  const double one = SummarySlice::bytes(metric_count(), units, seeds, records);
  return records > kMany ? one : one * thread_count();
}

}  // namespace kvbench
