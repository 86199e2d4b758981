#include "cli/sweep_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "algorithms/registry.hpp"
#include "cli/virtual_option.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

constexpr const char* kPlace = "the command line's sweep";
constexpr std::size_t kLongestName = 100;

// Names of all parameters, each with the algorithms that have it.
std::map<std::string, std::vector<std::string>> all_parameters() {
  std::map<std::string, std::vector<std::string>> owners;
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    for (const Parameter& parameter : algorithm.parameters) {
      owners[parameter.name].push_back(algorithm.id);
    }
  }
  return owners;
}

// "256,512" and "[256,512]" as a list, "0.25" and {"pow2": [6, 9]} as what they are, others as
// words.
json value_of(const std::string& text) {
  for (const std::string& written : {text, "[" + text + "]"}) {
    json value = json::parse(written, nullptr, false);
    if (!value.is_discarded()) return value;
  }
  if (text.find(',') == std::string::npos) return text;
  json words = json::array();
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

bool has_parameter(const AlgorithmDescription& algorithm, const std::string& name) {
  return std::any_of(algorithm.parameters.begin(), algorithm.parameters.end(),
                     [&](const Parameter& parameter) { return parameter.name == name; });
}

// Budgets that come to these parts of the exact cache's memory.
void add_memory(const SweepOptions& options, json& entries, ErrorList& errors) {
  const json given = value_of(options.memory);
  json budget = {{"memory", given}};
  if (given.is_array()) {
    budget = json::array();
    for (const json& part : given) budget.push_back({{"memory", part}});
  }
  if (!options.params.at("budget").empty()) {
    errors.add("--memory and --budget are both given; give one of them");
    return;
  }
  for (json& entry : entries) {
    const auto id = entry.at("algorithm").get<std::string>();
    const AlgorithmDescription* algorithm = find_algorithm(id);  // null: refused with the sweep
    if (algorithm != nullptr && !has_parameter(*algorithm, "budget")) {
      errors.add(fmt::format("--memory: {} has no budget; leave it out of this sweep", id));
    }
    entry["params"]["budget"] = budget;
  }
}

// `text` as part of a sweep's name: other characters than those of names become one "_".
std::string name_part(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
    if (is_plain) {
      out += c;
    } else if (!out.empty() && out.back() != '_' && out.back() != '-') {
      out += '_';
    }
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// What the sweep runs: algorithms, parameters and the rest that changes its cells, and the dumps. A
// sweep grows by its seeds, so they are not part of it.
std::string name_of(const json& sweep, const SweepOptions& options) {
  std::vector<std::string> parts = options.algorithms;
  std::set<std::string> params;
  for (const json& entry : sweep.at("algorithms")) {
    const json given = entry.value("params", json::object());
    for (const auto& [name, value] : given.items()) params.insert(name + "-" + text_of(value));
  }
  parts.insert(parts.end(), params.begin(), params.end());
  for (const auto& [key, value] : sweep.items()) {
    if (key == "schema_version" || key == "dumps" || key == "algorithms" || key == "seeds") continue;
    parts.push_back(key + "-" + text_of(value));
  }
  for (const std::string& set : options.sets) {
    if (set.starts_with("/seeds") || set.starts_with("seeds")) continue;
    parts.push_back(set);
  }
  parts.insert(parts.end(), options.only.begin(), options.only.end());
  for (const std::string& dump : options.dumps) {
    parts.push_back(std::filesystem::path(dump).stem().string());
  }
  std::string name;
  for (const std::string& part : parts) {
    const std::string plain = name_part(part);
    if (!plain.empty()) name += (name.empty() ? "" : "-") + plain;
  }
  if (name.find_first_not_of(".-_") != 0) name = "sweep" + name;
  if (name.size() <= kLongestName) return name;
  const std::string hash = hash128_hex(fmt::format("{}", fmt::join(parts, "\n"))).substr(0, 8);
  return name.substr(0, kLongestName - hash.size() - 1) + "-" + hash;
}

json sweep_document(const SweepOptions& options) {
  ErrorList errors;
  std::set<std::string> used;
  json entries = json::array();
  for (const std::string& name : options.algorithms) {
    json entry = {{"algorithm", name}};
    const AlgorithmDescription* algorithm = find_algorithm(name);  // null: refused with the sweep
    for (const auto& [parameter, text] : options.params) {
      if (text.empty()) continue;
      if (algorithm != nullptr && !has_parameter(*algorithm, parameter)) continue;
      used.insert(parameter);
      entry["params"][parameter] = value_of(text);
    }
    entries.push_back(std::move(entry));
  }
  for (const auto& [parameter, text] : options.params) {
    if (text.empty() || used.count(parameter) != 0) continue;
    errors.add(fmt::format("--{}: {} has no such parameter; {} have it", parameter,
                           fmt::join(options.algorithms, ", "),
                           fmt::join(all_parameters().at(parameter), ", ")));
  }
  if (!options.memory.empty()) add_memory(options, entries, errors);
  errors.throw_if_any();
  json sweep = {{"schema_version", 1}, {"dumps", options.dumps}, {"algorithms", entries}};
  if (!options.storage.empty()) sweep["storage"] = value_of(options.storage);
  sweep["name"] = name_of(sweep, options);
  return sweep;
}

}  // namespace

void add_sweep_options(CLI::App& command, SweepOptions& options) {
  command
      .add_option("-c,--config", options.config,
                  "Sweep file (JSON, configs/README.md); - is standard input")
      ->type_name("FILE");
  command
      .add_option("--dump", options.dumps,
                  "In place of a sweep file: a dump, or a glob of dumps; may be repeated")
      ->type_name("DUMP")
      ->allow_extra_args(false);
  command
      .add_option("--algorithm", options.algorithms,
                  "And an algorithm, its parameters by the options below; may be repeated")
      ->type_name("ID")
      ->allow_extra_args(false);
  command
      .add_option("--set", options.sets,
                  "Replace a value of the sweep by JSON, or a word: select.layers=[0], or with a "
                  "JSON pointer /select/layers=[0]; may be repeated")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--only", options.only,
                  "Only cells whose id or algorithm/label/sequence/layer/head matches; * stays "
                  "within a part; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command
      .add_option("--storage", options.storage,
                  "With --algorithm, how keys and values are stored: a codec, or JSON as in a "
                  "sweep; several with commas between")
      ->type_name("CODECS");
  command
      .add_option("--memory", options.memory,
                  "With --algorithm, budgets as parts of the exact cache's memory; several with "
                  "commas between")
      ->type_name("PARTS");
  add_allow_virtual(command, options.allow_virtual);
  for (const auto& [name, owners] : all_parameters()) {
    command
        .add_option("--" + name, options.params[name],
                    fmt::format("of {}", fmt::join(owners, ", ")))
        ->type_name("VALUES")
        ->group("Parameters, with --algorithm; several values with commas between");
  }
}

CLI::Option* add_shard_option(CLI::App& command, std::string& shard) {
  return command
      .add_option("--shard", shard,
                  "Only part i of n, dealt by estimated cost; `kvbench merge` joins the parts")
      ->envname("KVBENCH_SHARD")
      ->type_name("i/n");
}

SweepConfig read_sweep_options(const SweepOptions& options,
                               const std::vector<AlgorithmDescription>& algorithms) {
  const bool has_parameters = std::any_of(options.params.begin(), options.params.end(),
                                          [](const auto& param) { return !param.second.empty(); });
  const bool in_words = !options.dumps.empty() || !options.algorithms.empty() || has_parameters ||
                        !options.storage.empty() || !options.memory.empty();
  if (!options.config.empty() && in_words) {
    throw InputError(
        "--config and --dump, --algorithm or parameters are both given; give a sweep file, changed "
        "by --set, or dumps and algorithms");
  }
  if (!options.config.empty()) {
    return read_sweep(options.config, options.sets, algorithms, ErrorPolicy::kKeep);
  }
  if (options.dumps.empty() || options.algorithms.empty()) {
    throw InputError(
        fmt::format("{} is required; give a sweep file by --config, or --dump and --algorithm",
                    !in_words               ? "--config"
                    : options.dumps.empty() ? "--dump"
                                            : "--algorithm"));
  }
  return parse_sweep(sweep_document(options).dump(-1, ' ', false, json::error_handler_t::replace),
                     kPlace, options.sets, algorithms, ErrorPolicy::kKeep);
}

}  // namespace kvbench
