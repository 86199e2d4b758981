#include "sweep/cell_identity.hpp"

#include <fmt/format.h>

#include "sweep/axis.hpp"
#include "sweep/storage_axis.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

// Everything of a cell's key that its whole group shares.
json group_key(const Plan& plan, const WorkGroup& group) {
  return {{"dump", plan.dumps[group.dump].fingerprint},
          {"sequence", group.sequence},
          {"layer", group.layer},
          {"tokens", group.shape.tokens},
          {"prompt_tokens", group.prompt},
          {"rows", plan.rows},
          {"element_bytes", plan.element_bytes},
          {"device", plan.device}};
}

}  // namespace

GroupIdentity::GroupIdentity(const Plan& plan, const WorkGroup& group) {
  const json key = group_key(plan, group);
  const auto part = [&](const char* name) {
    return fmt::format("\"{}\":{}", name, exact_line(key[name]));
  };
  device_to_element_bytes_ = part("device") + "," + part("dump") + "," + part("element_bytes");
  layer_ = part("layer");
  prompt_and_rows_ = part("prompt_tokens") + "," + part("rows");
  sequence_ = part("sequence");
  tokens_ = part("tokens");
}

GroupIdentity::Cells GroupIdentity::cells(const PlannedSetting& setting, int kv_head,
                                          const std::string& params,
                                          const std::string& storage) const {
  std::string scoped;
  if (setting.scope) {
    scoped = fmt::format(",\"scope_kv_heads\":{},\"scope_layers\":{}",
                         exact_line(json(setting.scope->kv_heads)),
                         exact_line(json(setting.scope->layers)));
  }
  Cells cells;
  cells.key_ =
      fmt::format("{{\"algorithm\":\"{}\",{},\"kv_head\":{},{},\"params\":{},{}{},\"seed\":",
                  setting.algorithm->id, device_to_element_bytes_, kv_head, layer_, params,
                  prompt_and_rows_, scoped);
  cells.to_seed_ = cells.key_.size();
  const std::string stored = storage.empty() ? "" : fmt::format(",\"storage\":{}", storage);
  cells.after_seed_ = fmt::format(",{}{},{}}}", sequence_, stored, tokens_);
  return cells;
}

Key128 GroupIdentity::Cells::id(std::optional<std::uint32_t> seed) {
  key_.resize(to_seed_);
  key_ += seed ? std::to_string(*seed) : "null";
  key_ += after_seed_;
  return hash128(key_);
}

json params_json(const Params& params) {
  json object = json::object();
  for (const auto& [name, value] : params.entries()) object[name] = value_json(value);
  return object;
}

json cell_key(const Plan& plan, const PlannedCell& cell) {
  json key = group_key(plan, plan.groups[cell.group]);
  key["kv_head"] = cell.kv_head;
  key["algorithm"] = cell.algorithm->id;
  key["params"] = params_json(*cell.params);
  if (cell.scope) {
    key["scope_layers"] = cell.scope->layers;
    key["scope_kv_heads"] = cell.scope->kv_heads;
  }
  key["seed"] = cell.seed ? json(*cell.seed) : json(nullptr);
  if (cell.storage) key["storage"] = storage_json(cell.storage.get());
  return key;
}

std::string cell_path(const Plan& plan, const PlannedCell& cell) {
  const PlannedSetting& setting = plan.cells.settings()[cell.setting];
  return cell_path(plan.groups[cell.group], setting, cell.kv_head);
}

std::string cell_path(const WorkGroup& group, const PlannedSetting& setting, int kv_head) {
  return fmt::format("{}/{}/{}/{}/{}", setting.algorithm->id, *setting.label, group.sequence,
                     group.layer, kv_head);
}

}  // namespace kvbench
