#include "run/cache_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "results/provenance.hpp"
#include "sweep/cell_identity.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kLongestName = 180;

// Readable in every file system and shell.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool usual = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '.' || c == '_' || c == '=' || c == ',' || c == '+' || c == '-';
    out += usual ? c : '_';
  }
  return out;
}

std::string value_text(const Value& value) {
  if (const auto* memory = std::get_if<MemoryBudget>(&value)) {
    return fmt::format("memory{}", memory->fraction);
  }
  std::string text = to_string(value);
  visit_file(value,
             [&](const auto& file) { text = std::filesystem::path(file.path).stem().string(); });
  return text;
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
  return plain(*cell.label + values);
}

}  // namespace

std::optional<std::string> no_cache_file(const PlannedCell& cell) {
  if (cell.storage) return "a cache file has no place for what a codec writes";
  return cell.algorithm->not_rows(*cell.params);
}

std::vector<CacheFile> cache_files(const Plan& plan) {
  // The cells of a file differ in sequence, layer and KV head alone.
  std::map<std::string, std::size_t> place_of;
  std::map<std::string, int> count_of;  // by name
  std::vector<CacheFile> files;
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason || !has_cache_file(cell)) continue;
    const WorkGroup& group = plan.groups[cell.group];
    const std::string params = exact_line(params_json(*cell.params));
    const std::string seed = cell.seed ? fmt::format("-{}", *cell.seed) : "";
    const std::string setting =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}", *cell.label, cell.algorithm->id, params,
                    plan.dumps[group.dump].fingerprint, group.first_tokens, seed);
    const auto [place, is_new] = place_of.try_emplace(setting, files.size());
    if (is_new) {
      std::string name = setting_text(cell);
      if (plan.dumps.size() > 1) {
        name += "-" + plain(std::filesystem::path(plan.dumps[group.dump].path).stem().string());
      }
      if (plan.tokens_vary) name += fmt::format("-n{}", group.shape.tokens);
      name += seed;
      ++count_of[name];
      files.push_back({name,
                       hash128_hex(setting).substr(0, 8),
                       {.method = *cell.label,
                        .producer = "kvbench " + program_version(),
                        .params = params,
                        .seed = cell.seed,
                        .dump = plan.dumps[group.dump].fingerprint},
                       {}});
    }
    files[place->second].cells.push_back(
        {cell.id.text(), {group.sequence, group.layer, cell.kv_head}, group.shape});
  }
  for (CacheFile& file : files) {
    if (count_of[file.name] > 1 || file.name.size() > kLongestName) {
      file.name = file.name.substr(0, kLongestName) + "-" + file.hash;
    }
    file.name += ".h5";
  }
  return files;
}

}  // namespace kvbench
