#include "output/cell_text.hpp"

#include <fmt/core.h>

#include <algorithm>

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

Json varying_params(const Json& params, const std::vector<const Json*>& all) {
  Json out = Json::object();
  for (const auto& [name, value] : params.items()) {
    const bool is_shared =
        std::all_of(all.begin(), all.end(), [&, &name = name, &value = value](const Json* other) {
          return other->contains(name) && (*other)[name] == value;
        });
    if (!is_shared) out[name] = value;
  }
  return out;
}

std::string label_text(const std::string& label, const std::string& algorithm) {
  return label == algorithm ? label : label + " (" + algorithm + ")";
}

std::string cell_text(const Json& cell) {
  if (!cell.is_object()) return "-";
  std::string text;
  for (const char* name : {"algorithm", "label", "sequence", "layer", "kv_head"}) {
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
