#include "results/finished_run.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "results/provenance.hpp"
#include "system/append_log.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

// Throws IoError where there is no such file.
std::string hash_of_file(const std::string& path) {
  const AppendLog file(path, AppendLog::Access::kRead);
  if (!file.is_regular()) throw IoError(path + ": is not a regular file");
  Hash128 hash;
  std::vector<char> chunk(std::size_t{1} << 20);
  for (std::int64_t at = 0;;) {
    const std::size_t got = file.read_some(at, chunk);
    if (got == 0) return hash.hex();
    hash.add(chunk.data(), got);
    at += static_cast<std::int64_t>(got);
  }
}

template <class T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
std::optional<T> optional_at(const Json& json, const char* name) {
  const Json& value = json.at(name);
  return value.is_null() ? std::nullopt : std::optional(value.get<T>());
}

Json mean_json(const ComparedMean& mean) {
  return {{"mean", optional_json(mean.mean)},
          {"ci95", mean.interval ? Json({mean.interval->low, mean.interval->high}) : Json(nullptr)},
          {"undefined", mean.undefined}};
}

ComparedMean mean_of(const Json& json) {
  ComparedMean mean{
      .mean = optional_at<double>(json, "mean"), .interval = {}, .undefined = json.at("undefined")};
  if (const Json& ends = json.at("ci95"); !ends.is_null()) mean.interval = {ends.at(0), ends.at(1)};
  return mean;
}

Json setting_json(const SettingMeans& setting) {
  const auto& [algorithm, label, params, tokens, units, asked, is_compared, frobenius, spectral, l2,
               memory, traffic] = setting;
  return {{"algorithm", algorithm},
          {"label", label},
          {"params", params},
          {"tokens", optional_json(tokens)},
          {"units", units},
          {"asked", asked},
          {"is_compared", is_compared},
          {"frobenius", mean_json(frobenius)},
          {"spectral", mean_json(spectral)},
          {"l2", mean_json(l2)},
          {"memory_fraction", optional_json(memory)},
          {"traffic_fraction", optional_json(traffic)}};
}

SettingMeans setting_of(const Json& json) {
  return {.algorithm = json.at("algorithm"),
          .label = json.at("label"),
          .params = json.at("params"),
          .tokens = optional_at<Index>(json, "tokens"),
          .units = json.at("units"),
          .asked = json.at("asked"),
          .is_compared = json.at("is_compared"),
          .frobenius = mean_of(json.at("frobenius")),
          .spectral = mean_of(json.at("spectral")),
          .l2 = mean_of(json.at("l2")),
          .memory_fraction = optional_at<double>(json, "memory_fraction"),
          .traffic_fraction = optional_at<double>(json, "traffic_fraction")};
}

// As [state, number of records that have it] for each stretch of equal ones.
Json states_json(const std::vector<CellState>& states) {
  Json stretches = Json::array();
  for (auto first = states.begin(); first != states.end();) {
    const auto end = std::find_if(first, states.end(), [&](CellState s) { return s != *first; });
    stretches.push_back({static_cast<int>(*first), end - first});
    first = end;
  }
  return stretches;
}

std::vector<CellState> states_of(const Json& stretches) {
  std::vector<CellState> states;
  for (const Json& stretch : stretches) {
    states.insert(states.end(), stretch.at(1).get<std::size_t>(),
                  static_cast<CellState>(stretch.at(0).get<int>()));
  }
  return states;
}

}  // namespace

FinishedRun::FinishedRun(std::string folder, const Json& header, bool has_rows)
    : folder_(std::move(folder)), has_rows_(has_rows) {
  std::error_code ignored;
  of_ = hash128_hex(version_line() + "\n" + std::filesystem::current_path(ignored).native() + "\n" +
                    to_line(header));
}

// Adds the files to `hash`, which has all other lines. Throws IoError where one is missing.
std::string FinishedRun::last_line(Hash128& hash) const {
  for (const char* name : {"/journal.jsonl", "/results.json"}) {
    hash.add(hash_of_file(folder_ + name));
  }
  if (has_rows_) hash.add(hash_of_file(folder_ + "/results.rows.h5"));
  return to_line(hash.hex()) + "\n";
}

void FinishedRun::note(const FinishedRecords& records) const {
  const ComparedSettings& compared = records.compared;
  try {
    AtomicFile file(folder_ + "/" + kFinishedFile);
    Hash128 hash;
    const auto write = [&](const Json& json) {
      const std::string line = to_line(json) + "\n";
      hash.add(line);
      file.write(line);
    };
    write({{"of", of_},
           {"cells", states_json(records.cells)},
           {"layers", states_json(records.layers)},
           {"units", compared.units},
           {"asked", compared.asked},
           {"over", static_cast<int>(compared.over)},
           {"groups", compared.groups}});
    for (const SettingMeans& each : compared.settings) write(setting_json(each));
    file.write(last_line(hash));
    file.commit();
  } catch (const IoError&) {
    // The next run reads every record instead.
  }
}

std::optional<FinishedRecords> FinishedRun::find() const {
  try {
    const AppendLog file(folder_ + "/" + kFinishedFile, AppendLog::Access::kRead);
    const std::string text = file.read(0, file.size());
    const std::size_t end = text.rfind('\n', text.size() - 2) + 1;  // end of the other lines
    std::size_t next = text.find('\n') + 1;
    const Json noted = parse_line(std::string_view(text).substr(0, next));
    if (noted.at("of") != of_ || file_exists(folder_ + "/results.rows.h5.journal")) {
      return std::nullopt;
    }
    Hash128 hash;
    hash.add(std::string_view(text).substr(0, end));
    if (text.substr(end) != last_line(hash)) return std::nullopt;
    FinishedRecords records{
        .cells = states_of(noted.at("cells")),
        .layers = states_of(noted.at("layers")),
        .compared = {.settings = {},
                     .units = noted.at("units"),
                     .asked = noted.at("asked"),
                     .over = static_cast<UnitLevel>(noted.at("over").get<int>()),
                     .groups = noted.at("groups")}};
    while (next < end) {
      const std::size_t after = text.find('\n', next) + 1;
      records.compared.settings.push_back(
          setting_of(parse_line(std::string_view(text).substr(next, after - next))));
      next = after;
    }
    return records;
  } catch (const IoError&) {
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace kvbench
