#include "output/list_text.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "algorithms/registry.hpp"
#include "cuda/devices.hpp"
#include "kernels/kernels.hpp"
#include "metrics/layer_metrics.hpp"
#include "metrics/metric_table.hpp"
#include "output/counted_memory.hpp"
#include "output/list_document.hpp"
#include "output/log.hpp"
#include "output/table.hpp"
#include "results/provenance.hpp"
#include "storage/codec_registry.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

// Names that `derived` of a cell can have: by name and definition, the algorithms that report it,
// in the order of the registry.
struct DerivedRow {
  DerivedKey key;
  std::vector<std::string> algorithms;
};

std::vector<DerivedRow> derived_rows() {
  std::vector<DerivedRow> rows;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    for (const DerivedKey& key : algorithm.derived) {
      const auto [at, is_new] = known.try_emplace({key.name, key.definition}, rows.size());
      if (is_new) rows.push_back({key, {}});
      rows[at->second].algorithms.push_back(algorithm.id);
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.key.name < b.key.name; });
  return rows;
}

Json derived_json() {
  Json out = Json::array();
  for (const DerivedRow& row : derived_rows()) {
    out.push_back({{"name", row.key.name},
                   {"definition", row.key.definition},
                   {"algorithms", row.algorithms}});
  }
  return out;
}

Json devices_json() {
  Json out = Json::array();
  out.push_back({{"device", cpu_kernels().device()},
                 {"available", true},
                 {"name", cpu_model()},
                 {"isa", instruction_set()},
                 {"threads", thread_count()}});
  const CudaDevices found = cuda_devices();
  Json cuda = {{"device", "cuda"}, {"available", !found.devices.empty()}};
  if (found.devices.empty()) cuda["reason"] = found.reason;
  cuda["runtime"] = found.runtime.empty() ? Json() : Json(found.runtime);
  cuda["devices"] = Json::array();
  for (const CudaDevice& device : found.devices) {
    cuda["devices"].push_back(
        {{"index", device.index},
         {"name", device.name},
         {"compute", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
         {"multiprocessors", device.multiprocessors},
         {"memory_bytes", device.memory_bytes}});
  }
  out.push_back(std::move(cuda));
  return out;
}

// "a; or b and c", each name between two `quote`s.
std::string alternatives_text(const ExactlyOneOf& exclusive, const char* quote,
                              const char* either) {
  std::string out;
  for (const auto& alternative : exclusive.alternatives) {
    out += out.empty() ? "" : either;
    for (std::size_t i = 0; i < alternative.size(); ++i) {
      out += (i == 0 ? "" : " and ") + (quote + alternative[i] + quote);
    }
  }
  return out;
}

void print_parameters(const std::vector<Parameter>& parameters) {
  Table table({{"", Align::kLeft, 16},
               {"", Align::kLeft, 8},
               {"", Align::kLeft, 28},
               {"", Align::kLeft, 18},
               {"", Align::kLeft}},
              " ", "  ");
  for (const Parameter& parameter : parameters) {
    table.add(
        {parameter.name, kind_name(parameter.kind), range_text(parameter),
         parameter.default_value ? "default " + to_string(*parameter.default_value) : "no default",
         parameter.doc});
  }
  print_block(table.text(terminal_columns(stdout)));
}

void print_algorithms(const std::vector<std::string>& names) {
  for (const AlgorithmDescription* each : algorithms_named(names)) {
    const AlgorithmDescription& algorithm = *each;
    std::string name = algorithm.id;
    for (const std::string& alias : algorithm.aliases) name += " (alias " + alias + ")";
    fmt::print("{}: {}\n  {}\n  memory: {}\n", name, algorithm.title, algorithm.source,
               counted_memory(algorithm));
    print_parameters(algorithm.parameters);
    for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
      fmt::print("  exactly one of: {}\n", alternatives_text(exclusive, "", "; or "));
    }
    if (algorithm.answers_prompt_rows) {
      fmt::print("  rows of the prompt can be scored{}\n",
                 algorithm.masks_prompt ? ", no others" : "");
    }
    if (algorithm.reads) fmt::print("  may read what another method kept (\"then\")\n");
    fmt::print("\n");
  }
}

// Accepted values, "`a` or `b` and `c`" if it is one or the others.
std::string parameters_markdown(const AlgorithmDescription& algorithm) {
  std::vector<std::string> parts;
  std::set<std::string> named;
  for (const Parameter& parameter : algorithm.parameters) {
    if (named.count(parameter.name) != 0) continue;
    const auto exclusive = std::find_if(
        algorithm.exactly_one_of.begin(), algorithm.exactly_one_of.end(),
        [&](const ExactlyOneOf& each) {
          return std::any_of(each.alternatives.begin(), each.alternatives.end(),
                             [&](const std::vector<std::string>& names) {
                               return std::count(names.begin(), names.end(), parameter.name) != 0;
                             });
        });
    if (exclusive == algorithm.exactly_one_of.end()) {
      parts.push_back("`" + parameter.name + "`");
      continue;
    }
    parts.push_back(alternatives_text(*exclusive, "`", " or "));
    for (const auto& names : exclusive->alternatives) named.insert(names.begin(), names.end());
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_algorithms_markdown() {
  fmt::print("| id | keeps | parameters | source |\n|---|---|---|---|\n");
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    fmt::print("| `{}` | {} | {} | {} |\n", algorithm.id, algorithm.title,
               parameters_markdown(algorithm), algorithm.source);
  }
}

// The parameters by name, each with its form in every algorithm that has it.
std::map<std::string, Json> parameters_by_name() {
  std::map<std::string, Json> out;
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    for (const Parameter& parameter : algorithm.parameters) {
      const auto usual = parameter.default_value ? to_string(*parameter.default_value) : "";
      out[parameter.name].push_back({{"algorithm", algorithm.id},
                                     {"range", range_text(parameter)},
                                     {"default", usual.empty() ? Json() : Json(usual)},
                                     {"description", parameter.doc}});
    }
  }
  return out;
}

Json parameters_json() {
  Json out = Json::array();
  for (const auto& [name, owners] : parameters_by_name()) {
    out.push_back({{"name", name}, {"algorithms", owners}});
  }
  return out;
}

void print_parameters_by_name() {
  fmt::print(
      "n: tokens; P: those of the prompt; middle: the prompt's, without sinks and recent tokens; "
      "row: a query position\n\n");
  Table table({{"option", Align::kLeft, 16}, {"meaning and algorithms", Align::kLeft}}, " ");
  for (const auto& [name, owners] : parameters_by_name()) {
    std::map<std::string, std::vector<std::string>> by_meaning;
    for (const Json& owner : owners) {
      by_meaning[owner["description"].get<std::string>()].push_back(owner["algorithm"]);
    }
    std::string option = "--" + name;
    for (const auto& [meaning, ids] : by_meaning) {
      table.add({option, fmt::format("{}: {}", meaning, fmt::join(ids, ", "))});
      option.clear();
    }
  }
  print_block(table.text(terminal_columns(stdout)));
}

// "keys", "values" or both.
const char* tensors_text(const CodecDescription& codec) {
  if (!codec.of_keys) return "values";
  return codec.of_values ? "keys, values" : "keys";
}

// The parameters that several codecs share are printed once, above them.
void print_storage(const std::vector<std::string>& names) {
  const auto codecs = codecs_named(names);
  std::vector<std::string> without;
  for (const CodecDescription* codec : codecs) {
    if (!codec->can_rotate) without.push_back(codec->id);
  }
  const bool shared_above = codecs.size() > without.size() + 1;
  if (shared_above) {
    fmt::print("parameters of every codec{}{}\n", without.empty() ? "" : " except ",
               fmt::join(without, ", "));
    print_parameters(vector_parameters());
    fmt::print("\n");
  }
  for (const CodecDescription* codec : codecs) {
    fmt::print("{} ({}): {}\n  {} bits a number; {}\n", codec->id, tensors_text(*codec),
               codec->title, codec->bits, codec->source);
    std::vector<Parameter> own = codec->parameters;
    if (shared_above && codec->can_rotate) own.resize(own.size() - vector_parameters().size());
    print_parameters(own);
    fmt::print("\n");
  }
}

void print_storage_markdown() {
  fmt::print(
      "| codec | of | what | parameters | bits a number | source |\n|---|---|---|---|---|---|\n");
  for (const CodecDescription& codec : all_codecs()) {
    std::vector<std::string> names;
    for (const Parameter& parameter : codec.parameters) names.push_back("`" + parameter.name + "`");
    fmt::print("| `{}` | {} | {} | {} | {} | {} |\n", codec.id, tensors_text(codec), codec.title,
               fmt::join(names, ", "), codec.bits, codec.source);
  }
}

// A distribution over rows each.
void print_layer_metrics() {
  for (const LayerMetric& metric : layer_metrics()) {
    fmt::print("{} (of whole layers)\n  {}\n", metric.path, metric.definition);
  }
}

void print_metrics() {
  fmt::print("z, a, x, p, Z, N^, tau, V_i and the rest of results.json: configs/RESULTS.md\n");
  for (const Metric& metric : all_metrics()) {
    fmt::print("{}\n  {}\n", metric.path, metric.definition);
    if (!metric.source.empty()) fmt::print("  {}\n", metric.source);
  }
  print_layer_metrics();
}

void print_derived() {
  for (const DerivedRow& row : derived_rows()) {
    fmt::print("{}\n  {}\n  {}\n", row.key.name, row.key.definition,
               fmt::join(row.algorithms, ", "));
  }
}

// Escapes bars, which would end a cell of a table.
std::string in_markdown(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

const char* over_rows_text(const Metric& metric) {
  if (metric.of_all != nullptr) return "one number";
  switch (metric.over_rows) {
    case OverRows::kDistribution:
      return "mean, median, p90, p99, max";
    case OverRows::kDistributionAndLast:
      return "mean, median, p90, p99, max, last";
    case OverRows::kMean:
      return "mean";
    case OverRows::kRootMeanSquare:
      return "root mean square";
    case OverRows::kSum:
      return "sum";
  }
  return "";
}

void print_metrics_markdown() {
  fmt::print("| metric | definition | over rows | source |\n|---|---|---|---|\n");
  for (const Metric& metric : all_metrics()) {
    fmt::print("| `{}` | `{}` | {} | {} |\n", metric.path, in_markdown(metric.definition),
               over_rows_text(metric), metric.source);
  }
  for (const LayerMetric& metric : layer_metrics()) {
    fmt::print("| `{}` | `{}` | of whole layers: mean, median, p90, p99, max |  |\n", metric.path,
               in_markdown(metric.definition));
  }
}

void print_derived_markdown() {
  fmt::print("| derived | meaning | of |\n|---|---|---|\n");
  for (const DerivedRow& row : derived_rows()) {
    fmt::print("| `{}` | {} | `{}` |\n", row.key.name, in_markdown(row.key.definition),
               fmt::join(row.algorithms, "`, `"));
  }
}

void print_devices() {
  for (const Json& device : devices_json()) {
    std::string text;
    if (!device["available"].get<bool>()) {
      text = "not available: " + device["reason"].get<std::string>();
    } else if (device.contains("isa")) {
      text = fmt::format("{}, {}, {} threads", device["name"].get<std::string>(),
                         device["isa"].get<std::string>(), device["threads"].get<int>());
    } else {
      text = "CUDA " + device["runtime"].get<std::string>();
    }
    fmt::print("{}: {}\n", device["device"].get<std::string>(), text);
    if (!device.contains("devices")) continue;
    for (const Json& gpu : device["devices"]) {
      fmt::print("  {}: {}, compute {}\n", gpu["index"].get<int>(), gpu["name"].get<std::string>(),
                 gpu["compute"].get<std::string>());
    }
  }
}

}  // namespace

const std::vector<Listed>& all_listed() {
  using Names = std::vector<std::string>;
  static const std::vector<Listed> all = {
      {"algorithms", [](const Names& names) { print_algorithms(names); },
       [](const Names& names) { return algorithms_document(names); }, print_algorithms_markdown},
      {"parameters", [](const Names&) { print_parameters_by_name(); },
       [](const Names&) { return parameters_json(); }, nullptr},
      {"storage", [](const Names& names) { print_storage(names); },
       [](const Names& names) { return storage_document(names); }, print_storage_markdown},
      {"metrics", [](const Names&) { print_metrics(); },
       [](const Names&) { return metrics_document(); }, print_metrics_markdown},
      {"derived", [](const Names&) { print_derived(); },
       [](const Names&) { return derived_json(); }, print_derived_markdown},
      {"devices", [](const Names&) { print_devices(); },
       [](const Names&) { return devices_json(); }, nullptr},
  };
  return all;
}

}  // namespace kvbench
