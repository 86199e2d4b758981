#include "output/cell_text.hpp"

#include <fmt/core.h>

#include "output/terminal.hpp"

namespace kvbench {

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : to_line(value);
}

std::string params_text(const Json& params) {
  std::string out;
  for (const auto& [name, value] : params.items()) {
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, text_of(value));
  }
  return out;
}

void VaryingParams::add(const Json& params) {
  if (first_.is_null()) first_ = params;
  for (const auto& [name, value] : params.items()) {
    if (!first_.contains(name) || first_[name] != value) varying_.insert(name);
  }
  for (const auto& [name, value] : first_.items()) {
    if (!params.contains(name)) varying_.insert(name);
  }
}

Json VaryingParams::of(const Json& params) const {
  Json out = Json::object();
  for (const auto& [name, value] : params.items()) {
    if (varying_.count(name) != 0) out[name] = value;
  }
  return out;
}

std::string label_text(const std::string& label, const std::string& algorithm) {
  // Before its storage, if it has one (" | ").
  const bool says_it = label == algorithm || label.starts_with(algorithm + " | ");
  return says_it ? label : label + " (" + algorithm + ")";
}

std::string cell_text(const Json& cell) {
  if (!cell.is_object()) return "-";
  std::string text;
  for (const char* name : {"algorithm", "label", "sequence", "layer", "kv_head"}) {
    if (cell.at(name).is_null()) continue;  // the KV head of a whole layer
    text += fmt::format("{}{}", text.empty() ? "" : "/", text_of(cell.at(name)));
  }
  const std::string params = params_text(cell.at("params"));
  if (!params.empty()) text += " " + params;
  if (cell.contains("seed") && !cell.at("seed").is_null()) {
    text += " seed=" + text_of(cell.at("seed"));
  }
  return one_line(text);
}

}  // namespace kvbench
