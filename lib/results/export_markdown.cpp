#include "results/export_markdown.hpp"

#include <fmt/format.h>

#include <string>

namespace kvbench {
namespace {

std::string text_of(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : to_line(value);
}

std::string significant(const Json& value) {
  return value.is_number() ? fmt::format("{:.4g}", value.get<double>()) : "";
}

Json at_pointer(const Json& cell, const char* pointer) {
  const Json::json_pointer place(pointer);
  return cell.contains(place) ? cell.at(place) : Json();
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

void export_markdown(const Json& results, std::ostream& out) {
  out << "| id | label | params | sequence | layer | head | seed | status | relative_l2.mean | "
         "relative_frobenius_error | memory.fraction |\n"
         "|---|---|---|---|---:|---:|---:|---|---:|---:|---:|\n";
  for (const Json& cell : results.at("cells")) {
    const Json& key = cell.at("key");
    std::string params;
    for (const auto& [name, value] : key.at("params").items()) {
      params += (params.empty() ? "" : ", ") + name + "=" + text_of(value);
    }
    std::string status = text_of(cell.at("status"));
    if (cell.contains("reason")) status += ": " + text_of(cell["reason"]);
    out << "| " << text_of(cell.value("id", Json())).substr(0, 8) << " | "
        << escaped(text_of(cell.value("label", Json()))) << " | " << escaped(params) << " | "
        << escaped(text_of(key.value("sequence", Json()))) << " | "
        << text_of(key.value("layer", Json())) << " | " << text_of(key.value("kv_head", Json()))
        << " | " << text_of(key.value("seed", Json())) << " | " << escaped(status) << " | "
        << significant(at_pointer(cell, "/errors/relative_l2/mean")) << " | "
        << significant(at_pointer(cell, "/errors/relative_frobenius_error")) << " | "
        << significant(at_pointer(cell, "/memory/fraction")) << " |\n";
  }
}

}  // namespace kvbench
