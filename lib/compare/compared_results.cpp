#include "compare/compared_results.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "results/cell_field.hpp"
#include "results/cell_metric.hpp"

namespace kvbench {
namespace {

std::size_t place_of(Json value, std::vector<Json>& all, std::map<std::string, std::size_t>& find) {
  const auto [place, fresh] = find.try_emplace(to_line(value), all.size());
  if (fresh) all.push_back(std::move(value));
  return place->second;
}

std::string trouble_of(const Json& cell) {
  const std::string status = cell.at("status").get<std::string>();
  if (status == "ok") return "";
  const Json reason = cell.value("reason", Json());
  return status + (reason.is_string() ? ": " + reason.get<std::string>() : "");
}

}  // namespace

ComparedResults::ComparedResults(const std::vector<std::string>& metrics, std::string path,
                                 const char* member)
    : path_(std::move(path)), member_(member) {
  for (const std::string& metric : metrics) places_.push_back(metric_place(metric));
}

void ComparedResults::add(const Json& cell) {
  require_cell(cell, cells_.size(), path_, member_);
  const Json& key = cell.at("key");
  Cell out;
  out.key = hash128_hex(portable_key(cell));
  out.id = to_line(cell.value("id", Json()));
  const auto [first, fresh] = find_cell_.emplace(out.key, cells_.size());
  if (!fresh) {
    throw InputError(
        fmt::format("{}: {} {} and {} have the same key but for `device`; compare results of one "
                    "device each",
                    path_, member_, cells_[first->second].id, out.id));
  }
  Json setting = {{"algorithm", key.value("algorithm", Json())},
                  {"label", cell.value("label", Json())},
                  {"params", key.at("params")}};
  if (key.contains("storage")) setting["storage"] = key["storage"];
  out.setting = place_of(std::move(setting), settings_, find_setting_);
  Json unit;
  for (const char* name : {"dump", "sequence", "layer", "kv_head"}) {
    unit[name] = key.value(name, Json());
  }
  const std::string text = to_line({unit["dump"], unit["sequence"]});
  const Index number =
      find_text_.try_emplace(text, static_cast<Index>(find_text_.size())).first->second;
  const int layer = unit["layer"].is_number_integer() ? unit["layer"].get<int>() : 0;
  const Json tokens = key.value("tokens", Json());
  out.tokens = tokens.is_number_integer() ? tokens.get<Index>() : 0;
  const auto first_tokens = tokens_of_.try_emplace({number, layer}, out.tokens).first;
  tokens_vary_ = tokens_vary_ || first_tokens->second != out.tokens;
  out.unit = place_of(std::move(unit), units_, find_unit_);
  if (out.unit == nesting_.size()) nesting_.push_back({number, layer});
  out.seed = to_line(key.value("seed", Json()));
  out.trouble = trouble_of(cell);
  for (const Json::json_pointer& place : places_) {
    out.values.push_back(number_at(cell, place).value_or(NAN));
  }
  for (const auto& [name, value] : key.items()) {
    if (name != "device") key_values_[name].insert(to_line(value));
  }
  cells_.push_back(std::move(out));
}

const ComparedResults::Cell* ComparedResults::find(const std::string& key) const {
  const auto found = find_cell_.find(key);
  return found == find_cell_.end() ? nullptr : &cells_[found->second];
}

Json ComparedResults::reference(const Cell& cell) const {
  const Json& setting = settings_[cell.setting];
  const Json& unit = units_[cell.unit];
  return {{"id", Json::parse(cell.id)},  {"algorithm", setting["algorithm"]},
          {"label", setting["label"]},   {"sequence", unit["sequence"]},
          {"layer", unit["layer"]},      {"kv_head", unit["kv_head"]},
          {"params", setting["params"]}, {"seed", Json::parse(cell.seed)}};
}

}  // namespace kvbench
