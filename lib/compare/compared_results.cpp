#include "compare/compared_results.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "results/cell_field.hpp"
#include "results/cell_metric.hpp"
#include "system/error.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

std::uint32_t place_of(Json value, std::vector<Json>& all,
                       std::map<std::string, std::size_t>& find) {
  const auto [place, fresh] = find.try_emplace(to_line(value), all.size());
  if (fresh) all.push_back(std::move(value));
  return static_cast<std::uint32_t>(place->second);
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
  require_cell(cell, keys_.size(), path_, member_);
  const Json& key = cell.at("key");
  const std::string id = to_line(cell.value("id", Json()));
  const auto [place, is_new] = keys_.add(hash128(portable_key(cell)));
  if (!is_new) {
    throw InputError(
        fmt::format("{}: {} {} and {} have keys that differ only in `device`; compare "
                    "results of one device each",
                    path_, member_, Reader(*this).at(place).id, id));
  }
  Fixed fixed{};
  Json setting = {{"algorithm", key.value("algorithm", Json())},
                  {"label", cell.value("label", Json())},
                  {"params", key.at("params")}};
  if (key.contains("storage")) setting["storage"] = key["storage"];
  fixed.setting = place_of(std::move(setting), settings_, find_setting_);
  Json unit;
  for (const char* name : {"dump", "sequence", "layer", "kv_head"}) {
    unit[name] = key.value(name, Json());
  }
  const std::string text = to_line({unit["dump"], unit["sequence"]});
  const Index number = find_text_.try_emplace(text, std::ssize(find_text_)).first->second;
  const int layer = unit["layer"].is_number_integer() ? unit["layer"].get<int>() : 0;
  const Json tokens = key.value("tokens", Json());
  fixed.tokens = tokens.is_number_integer() ? tokens.get<Index>() : 0;
  const auto first_tokens = tokens_of_.try_emplace({number, layer}, fixed.tokens).first;
  tokens_vary_ = tokens_vary_ || first_tokens->second != fixed.tokens;
  fixed.unit = place_of(std::move(unit), units_, find_unit_);
  if (fixed.unit == nesting_.size()) nesting_.push_back({number, layer});
  const std::string seed = to_line(key.value("seed", Json()));
  fixed.id_size = static_cast<std::uint32_t>(id.size());
  fixed.seed_size = static_cast<std::uint32_t>(seed.size());
  std::string bytes(reinterpret_cast<const char*>(&fixed), sizeof(fixed));
  for (const Json::json_pointer& metric : places_) {
    const double value = number_at(cell, metric).value_or(NAN);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  cells_.add(bytes + id + seed + trouble_of(cell));
  for (const auto& [name, value] : key.items()) {
    if (name != "device") key_values_[name].add(hash128(to_line(value)));
  }
}

ComparedResults::Cell ComparedResults::Reader::at(std::size_t place) {
  std::string_view bytes = reader_.at(place);
  const auto take = [&](void* to, std::size_t size) {
    std::memcpy(to, bytes.data(), size);
    bytes.remove_prefix(size);
  };
  const auto take_text = [&](std::size_t size) {
    std::string text(bytes.substr(0, size));
    bytes.remove_prefix(size);
    return text;
  };
  Fixed fixed{};
  take(&fixed, sizeof(fixed));
  Cell cell;
  cell.setting = fixed.setting;
  cell.unit = fixed.unit;
  cell.tokens = fixed.tokens;
  cell.values.resize(metrics_);
  take(cell.values.data(), sizeof(double) * metrics_);
  cell.id = take_text(fixed.id_size);
  cell.seed = take_text(fixed.seed_size);
  cell.trouble = take_text(bytes.size());
  return cell;
}

Json ComparedResults::reference(const Cell& cell) const {
  const Json& setting = settings_[cell.setting];
  const Json& unit = units_[cell.unit];
  return {{"id", parse_line(cell.id)},   {"algorithm", setting["algorithm"]},
          {"label", setting["label"]},   {"sequence", unit["sequence"]},
          {"layer", unit["layer"]},      {"kv_head", unit["kv_head"]},
          {"params", setting["params"]}, {"seed", parse_line(cell.seed)}};
}

}  // namespace kvbench
