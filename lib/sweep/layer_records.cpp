#include "sweep/layer_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "sweep/cell_identity.hpp"
#include "sweep/storage_axis.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

// Text that tells the records of a group apart: all that its cells' keys have besides the KV head.
// Equal parameters of two entries have equal text.
std::string setting_of(const PlannedCell& cell, std::map<const void*, std::string>& texts) {
  const auto text_of = [&](const void* of, const auto& make) -> const std::string& {
    const auto [place, is_new] = texts.try_emplace(of);
    if (is_new) place->second = make();
    return place->second;
  };
  nlohmann::json key = nlohmann::json::array({cell.algorithm->id});
  key.push_back(text_of(cell.params.get(), [&] { return exact_line(params_json(*cell.params)); }));
  key.push_back(
      text_of(cell.storage.get(), [&] { return exact_line(storage_json(cell.storage.get())); }));
  key.push_back(cell.seed ? nlohmann::json(*cell.seed) : nlohmann::json(nullptr));
  if (cell.scope) key.push_back({cell.scope->layers, cell.scope->kv_heads});
  return exact_line(key);
}

void add_of_group(Plan& plan, std::size_t g) {
  WorkGroup& group = plan.groups[g];
  std::map<const void*, std::string> texts;
  std::map<std::string, std::size_t> find;  // into `found`
  std::vector<PlannedLayerRecord> found;
  for (const std::size_t c : group.cells) {  // by KV head
    const std::string setting = setting_of(plan.cells[c], texts);
    const auto [place, is_new] = find.try_emplace(setting, found.size());
    if (is_new) found.push_back({"", g, {}});
    found[place->second].cells.push_back(c);
  }
  for (PlannedLayerRecord& record : found) {
    if (static_cast<int>(record.cells.size()) != group.kv_heads) continue;
    record.id = hash128_hex(exact_line(layer_record_key(plan, record)));
    group.layer_records.push_back(plan.layer_records.size());
    plan.layer_records.push_back(std::move(record));
  }
}

bool has_evidence_row(const WorkGroup& group) {
  if (!group.evidence) return false;
  const std::vector<Index>& evidence_rows = group.evidence->rows;
  return std::any_of(evidence_rows.begin(), evidence_rows.end(), [&](Index row) {
    return std::binary_search(group.rows.begin(), group.rows.end(), row);
  });
}

}  // namespace

void add_layer_records(Plan& plan) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (plan.groups[g].hidden > 0 || has_evidence_row(plan.groups[g])) add_of_group(plan, g);
  }
}

nlohmann::json layer_record_key(const Plan& plan, const PlannedLayerRecord& record) {
  nlohmann::json key = cell_key(plan, plan.cells[record.cells.front()]);
  key.erase("kv_head");
  return key;
}

std::string layer_record_path(const Plan& plan, const PlannedLayerRecord& record) {
  const std::string path = cell_path(plan, plan.cells[record.cells.front()]);
  return path.substr(0, path.rfind('/'));
}

std::optional<std::string> layer_skip_reason(const Plan& plan, const PlannedLayerRecord& record) {
  for (const std::size_t c : record.cells) {
    const PlannedCell& cell = plan.cells[c];
    if (cell.skip_reason) return fmt::format("KV head {}: {}", cell.kv_head, *cell.skip_reason);
  }
  return std::nullopt;
}

}  // namespace kvbench
