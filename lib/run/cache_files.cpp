#include "run/cache_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "results/provenance.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kLongestName = 200;

// Readable in every file system and shell.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool usual = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '.' || c == '_' || c == '=' || c == ',' || c == '+' || c == '-';
    out += usual ? c : '_';
  }
  return out.substr(0, kLongestName);
}

std::string value_text(const Value& value) {
  if (const auto* memory = std::get_if<MemoryBudget>(&value)) {
    return fmt::format("memory{}", memory->fraction);
  }
  if (const auto* file = std::get_if<CacheParameter>(&value)) {
    return std::filesystem::path(file->path).stem().string();
  }
  return to_string(value);
}

bool is_default(const AlgorithmDescription& algorithm, const std::string& name,
                const Value& value) {
  for (const Parameter& parameter : algorithm.parameters) {
    if (parameter.name != name || !parameter.default_value) continue;
    Value usual = *parameter.default_value;
    static_cast<void>(check_value(parameter, usual));
    return usual == value;
  }
  return false;
}

// label-name=value,name=value
std::string setting_text(const PlannedCell& cell) {
  std::string values;
  for (const auto& [name, value] : cell.params->entries()) {
    if (is_default(*cell.algorithm, name, value)) continue;
    values += (values.empty() ? "-" : ",") + name + "=" + value_text(value);
  }
  return plain(cell.label + values);
}

}  // namespace

bool has_cache_file(const PlannedCell& cell) { return !cell.algorithm->not_rows(*cell.params); }

std::vector<CacheFile> cache_files(const Plan& plan) {
  // What makes a file: its cells differ in sequence, layer and KV head alone.
  using Key = std::tuple<std::string, std::string, std::string, std::size_t, Index,
                         std::optional<std::uint32_t>>;
  std::map<Key, std::size_t> place_of;
  std::set<std::string> names;
  std::vector<CacheFile> files;
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason || !has_cache_file(cell)) continue;
    const WorkGroup& group = plan.groups[cell.group];
    const std::string params = params_json(*cell.params).dump();
    const Key key = {cell.label, cell.algorithm->id, params,
                     group.dump, group.first_tokens, cell.seed};
    const auto [place, is_new] = place_of.try_emplace(key, files.size());
    if (is_new) {
      std::string name = setting_text(cell);
      if (plan.dumps.size() > 1) {
        name += "-" + plain(std::filesystem::path(plan.dumps[group.dump].path).stem().string());
      }
      if (plan.tokens_vary) name += fmt::format("-n{}", group.shape.tokens);
      if (cell.seed) name += fmt::format("-{}", *cell.seed);
      std::string unique = name;
      for (int i = 2; !names.insert(unique).second; ++i) unique = fmt::format("{}-{}", name, i);
      files.push_back({unique + ".h5",
                       {.method = cell.label,
                        .producer = "kvbench " + program_version(),
                        .params = params,
                        .seed = cell.seed},
                       {}});
    }
    files[place->second].cells.push_back(
        {cell.id, {group.sequence, group.layer, cell.kv_head}, group.shape});
  }
  return files;
}

}  // namespace kvbench
