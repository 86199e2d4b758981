#include "cli/sweep_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>

#include "algorithms/registry.hpp"
#include "cli/index_list.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"
#include "system/hash.hpp"

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

// "h2o, snapkv" as two.
std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> out;
  std::istringstream words(names);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t first = word.find_first_not_of(' ');
    out.push_back(first == std::string::npos
                      ? ""
                      : word.substr(first, word.find_last_not_of(' ') - first + 1));
  }
  if (names.empty() || names.back() == ',') out.emplace_back();
  return out;
}

// "256,512" and "[256,512]" as a list, "0.25" and {"pow2": [6, 9]} as what they are, others as
// words.
json value_of(const std::string& option, const std::string& text) {
  for (const std::string& written : {text, "[" + text + "]"}) {
    json value = parse_sorted_or_discarded(written);
    if (!value.is_discarded()) return value;
  }
  if (text.find("{\"") != std::string::npos) {
    throw InputError(fmt::format(
        "{}: {} is not JSON; next to an object, words have quotes: [\"a\", {{\"b\": \"c\"}}]",
        option, text));
  }
  if (text.find(',') == std::string::npos) return number_or_word(text);
  json words = json::array();
  for (const std::string& word : split(text)) {
    if (word.empty()) {
      throw InputError(
          fmt::format("{}: has an empty value in \"{}\"; remove a comma", option, text));
    }
    words.push_back(number_or_word(word));
  }
  return words;
}

// "0-2,5" as 0,1,2,5, as the exporter reads it; other values as they are.
json without_ranges(const std::string& option, const json& value) {
  if (value.is_number()) return value;
  json numbers = json::array();
  for (const json& each : value.is_array() ? value : json::array({value})) {
    if (each.is_number()) {
      numbers.push_back(each);
      continue;
    }
    if (!each.is_string()) return value;
    const std::vector<int> indices = indices_of(option, each.get<std::string>());
    if (indices.empty()) return value;
    for (const int index : indices) numbers.push_back(index);
  }
  return numbers;
}

bool has_parameter(const AlgorithmDescription& algorithm, const std::string& name) {
  return std::any_of(algorithm.parameters.begin(), algorithm.parameters.end(),
                     [&](const Parameter& parameter) { return parameter.name == name; });
}

std::vector<std::string> algorithms_of(const SweepOptions& options, ErrorList& errors) {
  std::vector<std::string> all;
  for (const std::string& given : options.algorithms) {
    for (const std::string& name : split(given)) {
      if (name.empty()) {
        errors.add(fmt::format("--algorithm: has an empty name in \"{}\"; remove a comma", given));
      } else {
        all.push_back(name);
      }
    }
  }
  return all;
}

// Values with which each algorithm keeps these parts of the exact cache's memory.
void add_memory(const SweepOptions& options, json& entries, ErrorList& errors) {
  const json given = value_of("--memory", options.memory);
  json asked = {{"memory", given}};
  if (given.is_array()) {
    asked = json::array();
    for (const json& part : given) asked.push_back({{"memory", part}});
  }
  if (!options.params.at("budget").empty()) {
    errors.add("--memory: --budget is given as well; give one of them");
    return;
  }
  for (json& entry : entries) {
    const auto id = entry.at("algorithm").get<std::string>();
    const AlgorithmDescription* algorithm = find_algorithm(id);  // null: refused with the sweep
    if (algorithm == nullptr) continue;
    const auto solved = std::ranges::find_if(
        algorithm->parameters, [](const Parameter& each) { return each.takes_memory; });
    if (solved == algorithm->parameters.end()) {
      errors.add(fmt::format("--memory: cannot be solved for {}: {}", id,
                             algorithm->for_less_memory.empty()
                                 ? "its parameters alone do not decide it; give their values"
                                 : algorithm->for_less_memory));
    } else if (entry.contains("params") && entry["params"].contains(solved->name)) {
      errors.add(
          fmt::format("--memory: solves {} of {}, which is given as well; leave one of them "
                      "out",
                      solved->name, id));
    } else {
      entry["params"][solved->name] = asked;
    }
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

std::string text_of(const json& value) { return sorted_line(value); }

// The content of the sweep: algorithms, parameters and the rest that changes its cells, and the
// dumps. A sweep grows by its seeds, so they are not part of it.
std::string name_of(const json& sweep, const std::vector<std::string>& algorithms,
                    const SweepOptions& options) {
  std::vector<std::string> parts = algorithms;
  std::set<std::string> params;
  for (const json& entry : sweep.at("algorithms")) {
    const json given = entry.value("params", json::object());
    for (const auto& [name, value] : given.items()) params.insert(name + "-" + text_of(value));
  }
  parts.insert(parts.end(), params.begin(), params.end());
  for (const auto& [key, value] : sweep.items()) {
    if (key == "schema_version" || key == "dumps" || key == "algorithms" || key == "seeds")
      continue;
    parts.push_back(key + "-" + text_of(value));
  }
  for (const std::string& set : options.all_sets()) {
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

// How to choose what a parameter's name says besides, "" for most.
std::string meant_by(const std::string& parameter) {
  if (parameter == "heads") return "; KV heads are chosen by --kv-heads";
  if (parameter == "rows") return "; rows are chosen by --set 'evaluate.rows={\"last\": 64}'";
  return "";
}

json sweep_document(const SweepOptions& options) {
  ErrorList errors;
  std::set<std::string> used;
  json entries = json::array();
  const std::vector<std::string> algorithms = algorithms_of(options, errors);
  errors.throw_if_any();
  for (const std::string& name : algorithms) {
    json entry = {{"algorithm", name}};
    const AlgorithmDescription* algorithm = find_algorithm(name);  // null: refused with the sweep
    for (const auto& [parameter, text] : options.params) {
      if (text.empty()) continue;
      if (algorithm != nullptr && !has_parameter(*algorithm, parameter)) continue;
      used.insert(parameter);
      entry["params"][parameter] = value_of("--" + parameter, text);
    }
    entries.push_back(std::move(entry));
  }
  for (const auto& [parameter, text] : options.params) {
    if (text.empty() || used.count(parameter) != 0) continue;
    errors.add(fmt::format("--{}: {} has no such parameter; it belongs to {}{}", parameter,
                           fmt::join(algorithms, ", "),
                           fmt::join(all_parameters().at(parameter), ", "), meant_by(parameter)));
  }
  if (!options.memory.empty()) add_memory(options, entries, errors);
  errors.throw_if_any();
  json sweep = {{"schema_version", 1}, {"dumps", options.dumps}, {"algorithms", entries}};
  if (!options.storage.empty()) sweep["storage"] = value_of("--storage", options.storage);
  sweep["name"] = name_of(sweep, algorithms, options);
  return sweep;
}

// "/select/layers" and "select.layers" as the latter.
std::string dotted(std::string path) {
  path = path.substr(0, path.find('='));
  if (path.starts_with('/')) {
    path.erase(0, 1);
    std::ranges::replace(path, '/', '.');
  }
  return path;
}

}  // namespace

std::vector<std::string> SweepOptions::all_sets() const {
  ErrorList errors;
  std::vector<std::string> out;
  const auto add = [&](const char* option, const std::string& text, std::string path) {
    if (text.empty()) return;
    json value = value_of(option, text);
    if (path.starts_with("select.")) value = without_ranges(option, value);
    const std::string section = path.substr(0, path.find('.'));
    // A number of seeds, or a list of them.
    if (section == "seeds" && (value.is_array() || value.is_object())) path = section;
    for (const std::string& set : sets) {
      const std::string other = dotted(set);
      if (other != path && other != section && !other.starts_with(path + ".")) continue;
      errors.add(fmt::format("{}: --set {} is given as well; give one of them", option, other));
    }
    out.push_back(path + "=" + sorted_line(value));
  };
  add("--seeds", seeds, "seeds.count");
  add("--layers", layers, "select.layers");
  add("--kv-heads", kv_heads, "select.kv_heads");
  add("--prompt-tokens", prompt_tokens, "replay.prompt_tokens");
  errors.throw_if_any();
  out.insert(out.end(), sets.begin(), sets.end());
  return out;
}

void add_sweep_options(CLI::App& command, SweepOptions& options) {
  command
      .add_option("-c,--config", options.config,
                  "Sweep file (JSON, configs/README.md); - is standard input")
      ->type_name("FILE");
  command.add_option("--dump", options.dumps, "In place of a sweep file: dumps, or globs of dumps")
      ->type_name("DUMP");
  command
      .add_option("--algorithm", options.algorithms,
                  "Algorithms, separated by commas; their options: `kvbench list parameters`")
      ->type_name("ID");
  command
      .add_option("--memory", options.memory,
                  "With --algorithm, fractions of the exact cache's memory: 0.1,0.2")
      ->type_name("FRACTIONS");
  command
      .add_option("--storage", options.storage,
                  "With --algorithm, codecs of the cache, separated by commas, or a JSON list")
      ->type_name("CODECS");
  command.add_option("--seeds", options.seeds, "Number of seeds, or seeds separated by commas")
      ->type_name("N");
  command.add_option("--layers", options.layers, "Layers, such as 0-7,15, or all")
      ->type_name("LAYERS");
  command.add_option("--kv-heads", options.kv_heads, "KV heads, such as 0-3,7, or all")
      ->type_name("HEADS");
  command
      .add_option("--prompt-tokens", options.prompt_tokens,
                  "Tokens of the prompt, or its fraction of the sequence; the rest is decoded")
      ->type_name("P");
  command
      .add_option("--set", options.sets,
                  "Replace another value of the sweep, by JSON or a word; repeatable")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--only", options.only,
                  "Only cells of this id or algorithm/label/sequence/layer/head; repeatable")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  // A group of its own, since CLI11 2.4 refuses --c next to -c. `kvbench list parameters` has them.
  CLI::Option_group* parameters = command.add_option_group("parameters");
  parameters->group("");
  for (const auto& [name, owners] : all_parameters()) {
    parameters
        ->add_option("--" + name, options.params[name],
                     fmt::format("of {}", fmt::join(owners, ", ")))
        ->type_name("VALUES");
  }
}

CLI::Option* add_shard_option(CLI::App& command, std::string& shard) {
  return command
      .add_option("--shard", shard,
                  "Only shard i of n, balanced by cost; `kvbench merge` joins the shards")
      ->envname("KVBENCH_SHARD")
      ->type_name("i/n");
}

SweepConfig read_sweep_options(const SweepOptions& options) {
  const bool has_parameters = std::any_of(options.params.begin(), options.params.end(),
                                          [](const auto& param) { return !param.second.empty(); });
  const bool in_words = !options.dumps.empty() || !options.algorithms.empty() || has_parameters ||
                        !options.storage.empty() || !options.memory.empty();
  if (!options.config.empty() && in_words) {
    throw InputError(
        "--config: --dump, --algorithm or parameters are given as well; give a sweep file, changed "
        "by --set, or dumps and algorithms");
  }
  if (!options.config.empty()) {
    return read_sweep(options.config, options.all_sets(), all_algorithms(), ErrorPolicy::kKeep);
  }
  if (options.dumps.empty() || options.algorithms.empty()) {
    throw InputError(
        fmt::format("{}: is required; give a sweep file by --config, or --dump and --algorithm",
                    !in_words               ? "--config"
                    : options.dumps.empty() ? "--dump"
                                            : "--algorithm"));
  }
  return parse_sweep(sorted_line(sweep_document(options)), kPlace, options.all_sets(),
                     all_algorithms(), ErrorPolicy::kKeep);
}

SweepSource source_of(const SweepOptions& options) {
  SweepSource source{.file = options.config};
  if (source.has_file()) source.sets = options.all_sets();
  return source;
}

}  // namespace kvbench
