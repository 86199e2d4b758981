#include "results/allocation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/pair_names.hpp"
#include "numerics/knapsack.hpp"
#include "results/cell_field.hpp"
#include "results/cell_metric.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr const char* kStorageMark = " | ";

std::optional<double> number_of(const Json& cell, const Json::json_pointer& place) {
  if (!cell.contains(place) || !cell.at(place).is_number()) return std::nullopt;
  return cell.at(place).get<double>();
}

// The label without the storage.
std::string method_label(const Json& cell, bool is_stored) {
  const std::string label = cell.at("label").get<std::string>();
  return is_stored ? label.substr(0, label.rfind(kStorageMark)) : label;
}

// Names files by their paths in place of their fingerprints. `files`: the results' list of them.
void name_by_path(Json& part, const Json& files) {
  if (part.is_structured()) {
    for (Json& each : part) name_by_path(each, files);
  }
  for (const Json& file : files) {
    if (file.at("fingerprint") == part) part = file.at("path");
  }
}

// Cells' setting as an entry of a sweep: a pair's second method in `then`.
Json sweep_entry(const Json& setting) {
  const auto [first, second] = ids_of_pair(setting.at("algorithm").get<std::string>());
  Json entry = {{"algorithm", first}, {"label", setting.at("label")}};
  Json& params = entry["params"] = Json::object();
  Json of_second = Json::object();
  for (const auto& [name, value] : setting.at("params").items()) {
    const auto in_second = second.empty() ? std::nullopt : name_in_reader(name);
    Json& own = in_second ? of_second[*in_second] : params[name];
    own = value;
  }
  if (!second.empty()) entry["then"] = {{"algorithm", second}, {"params", std::move(of_second)}};
  return entry;
}

// One storage for some layers.
Json by_layer(const std::vector<LayerChoice>& choices) {
  std::map<std::string, Json> layers;
  for (const LayerChoice& choice : choices) {
    Json& of_storage = layers.try_emplace(to_line(choice.storage), Json::array()).first->second;
    of_storage.push_back(choice.layer);
  }
  Json out = Json::array();
  for (const auto& [storage, of_storage] : layers) {
    out.push_back({{"layers", of_storage}, {"storage", Json::parse(storage)}});
  }
  return {{"by_layer", std::move(out)}};
}

using TextsByLayer = std::map<int, std::set<std::string>>;

// Bytes of several lengths have no sum, and means of layers over other texts cannot be compared.
void refuse_unlike_layers(const TextsByLayer& texts, const std::set<Index>& tokens,
                          const std::string& path) {
  if (tokens.size() > 1) {
    throw InputError(fmt::format("{}: has streams of {} tokens; run a sweep with one length", path,
                                 fmt::join(tokens, " and of ")));
  }
  for (const auto& [layer, of_layer] : texts) {
    if (of_layer == texts.begin()->second) continue;
    throw InputError(
        fmt::format("{}: layers {} and {} have other texts; run a sweep over dumps "
                    "that all have the same layers",
                    path, texts.begin()->first, layer));
  }
}

}  // namespace

Index Allocation::bytes(const std::vector<LayerChoice>& choices) {
  return std::accumulate(choices.begin(), choices.end(), Index{0},
                         [](Index sum, const LayerChoice& each) { return sum + each.bytes; });
}

double Allocation::loss(const std::vector<LayerChoice>& choices) {
  const double sum =
      std::accumulate(choices.begin(), choices.end(), 0.0,
                      [](double so_far, const LayerChoice& each) { return so_far + each.loss; });
  return sum / choices.size();
}

void AllocationCells::add(const Json& cell, std::size_t index, const std::string& path) {
  require_cell(cell, index, path);
  const Json& key = cell.at("key");
  const Json storage = key.value("storage", Json("float"));
  if (storage.contains("by_layer")) return;
  const Json entry = {{"algorithm", key.at("algorithm")},
                      {"params", key.at("params")},
                      {"label", method_label(cell, key.contains("storage"))}};
  const int layer = key.at("layer").get<int>();
  Method& method = methods_[to_line(entry)];
  method.entry = entry;
  const Json text = {key.at("dump"), key.at("sequence"), key.at("tokens")};
  method.texts[layer].insert(to_line(text));
  method.tokens.insert(key.at("tokens").get<Index>());
  method.kv_heads.insert(key.at("kv_head").get<int>());
  const Json unit = {key.at("dump"), key.at("sequence"), key.at("tokens"), key.at("kv_head")};
  method.asked[layer].insert(to_line(unit));
  if (cell.at("status") != "ok") return;
  const auto loss = number_of(cell, metric_place(rules_.metric));
  const auto peak = number_of(cell, Json::json_pointer("/memory/peak_bytes"));
  if (!loss || !peak) return;
  const auto shared = number_of(cell, Json::json_pointer("/memory/shared_bytes"));
  Sum& sum = method.layers[layer][to_line(storage)][to_line(unit)];
  sum.loss += *loss;
  sum.bytes += *peak + shared.value_or(0.0);
  sum.seeds += 1.0;
}

const AllocationCells::Method& AllocationCells::method(const std::string& path) const {
  std::vector<const Method*> found;
  std::set<std::string> labels;
  for (const auto& [text, method] : methods_) {
    if (method.layers.empty()) continue;  // without a number
    const std::string label = method.entry["label"].get<std::string>();
    labels.insert(label);
    if (rules_.label.empty() || label == rules_.label) found.push_back(&method);
  }
  if (found.size() == 1) return *found.front();
  const std::string known = fmt::format("{}", fmt::join(labels, ", "));
  if (labels.empty()) {
    throw InputError(
        fmt::format("{}: no cell with one storage for all layers has a number {} of its KV head; "
                    "run a sweep with several storages, or name another metric",
                    path, rules_.metric));
  }
  if (found.empty()) {
    throw InputError(
        fmt::format("--label: {} has no method {}; name one of: {}", path, rules_.label, known));
  }
  if (labels.size() > 1 && rules_.label.empty()) {
    throw InputError(fmt::format("{}: has several methods; name one by --label: {}", path, known));
  }
  throw InputError(fmt::format("{}: {} has {} settings of its parameters; run a sweep with one",
                               path, found.front()->entry["label"].get<std::string>(),
                               found.size()));
}

Allocation AllocationCells::allocated(const Json& results, const std::string& path) const {
  const Method& of = method(path);
  refuse_unlike_layers(of.texts, of.tokens, path);
  std::vector<std::vector<LayerChoice>> layers;
  std::vector<std::vector<KnapsackChoice>> items;
  std::map<std::string, std::vector<LayerChoice>> uniform;
  std::vector<int> without;  // layers in which no storage has all KV heads
  for (const auto& [layer, asked] : of.asked) {
    const double texts = of.texts.at(layer).size();
    auto& choices = layers.emplace_back();
    auto& sizes = items.emplace_back();
    const auto storages = of.layers.find(layer);
    if (storages == of.layers.end()) {
      without.push_back(layer);
      continue;
    }
    for (const auto& [storage, units] : storages->second) {
      if (units.size() < asked.size()) continue;  // its mean would be of other heads
      double loss = 0.0;
      double bytes = 0.0;
      for (const auto& [unit, sum] : units) {
        loss += sum.loss / sum.seeds;
        bytes += sum.bytes / sum.seeds;
      }
      const LayerChoice choice{layer, Json::parse(storage),
                               static_cast<Index>(std::ceil(bytes / texts)), loss / asked.size()};
      choices.push_back(choice);
      sizes.push_back({choice.bytes, choice.loss});
      uniform[storage].push_back(choice);
    }
    if (choices.empty()) without.push_back(layer);
  }
  if (!without.empty()) {
    throw InputError(fmt::format(
        "{}: no storage has a number {} of every KV head of {} {}; run a sweep with one more "
        "storage, such as float, or without these layers",
        path, rules_.metric, without.size() > 1 ? "layers" : "layer", fmt::join(without, ", ")));
  }
  const auto chosen = least_loss(items, rules_.bytes);
  if (!chosen) {
    Index least = 0;
    for (const auto& choices : items) {
      least += std::min_element(choices.begin(), choices.end(), [](const auto& a, const auto& b) {
                 return a.size < b.size;
               })->size;
    }
    throw InputError(fmt::format(
        "--bytes: {} is too little: the smallest storages of {} layers take {} bytes; give that "
        "or more",
        rules_.bytes, items.size(), least));
  }
  Allocation out;
  for (std::size_t i = 0; i < layers.size(); ++i) out.layers.push_back(layers[i][(*chosen)[i]]);
  for (const auto& [storage, choices] : uniform) {
    if (choices.size() < layers.size() || Allocation::bytes(choices) > rules_.bytes) continue;
    if (out.uniform.empty() || Allocation::loss(choices) < Allocation::loss(out.uniform)) {
      out.uniform = choices;
    }
  }
  const Json& config = results.at("config");
  out.sweep = config;
  out.sweep.erase("storage");
  out.sweep["name"] = config.value("name", "sweep") + "-allocated";
  Json entry = sweep_entry(of.entry);
  entry["storage"] = by_layer(out.layers);
  name_by_path(entry, results.value("calibrations", Json::array()));
  out.sweep["algorithms"] = Json::array({std::move(entry)});
  Json& selected = out.sweep["select"]["layers"] = Json::array();
  for (const LayerChoice& choice : out.layers) selected.push_back(choice.layer);
  out.sweep["select"]["kv_heads"] = of.kv_heads;
  return out;
}

}  // namespace kvbench
