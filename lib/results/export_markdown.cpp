#include "results/export_markdown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "system/printable.hpp"

namespace kvbench {
namespace {

std::string plain(const Json& value) {
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

// A terminal may show the table.
std::string escaped(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

// The params of a record's key as "budget=64, window=8".
std::string params_of(const Json& key) {
  std::string params;
  for (const auto& [name, value] : key.at("params").items()) {
    params += (params.empty() ? "" : ", ") + name + "=" + plain(value);
  }
  return params;
}

std::string status_of(const Json& record) {
  std::string status = plain(record.at("status"));
  if (record.contains("reason")) status += ": " + plain(record["reason"]);
  return status;
}

}  // namespace

void export_markdown(const VisitRecords& cells, std::ostream& out) {
  out << "| id | label | params | sequence | layer | head | seed | status | relative_l2.mean | "
         "relative_frobenius_error | memory.fraction |\n"
         "|---|---|---|---|---:|---:|---:|---|---:|---:|---:|\n";
  cells([&](const Json& cell) {
    const Json& key = cell.at("key");
    out << "| " << plain(cell.value("id", Json())).substr(0, 8) << " | "
        << escaped(plain(cell.value("label", Json()))) << " | " << escaped(params_of(key)) << " | "
        << escaped(plain(key.value("sequence", Json()))) << " | "
        << plain(key.value("layer", Json())) << " | " << plain(key.value("kv_head", Json()))
        << " | " << plain(key.value("seed", Json())) << " | " << escaped(status_of(cell)) << " | "
        << significant(at_pointer(cell, "/errors/relative_l2/mean")) << " | "
        << significant(at_pointer(cell, "/errors/relative_frobenius_error")) << " | "
        << significant(at_pointer(cell, "/memory/fraction")) << " |\n";
  });
}

void export_layers_markdown(const VisitRecords& layers, std::ostream& out) {
  out << "| id | label | params | sequence | layer | seed | status | relative_output_l2.mean | "
         "residual_ratio.mean | cancellation.mean | half_heads.mean | memory.fraction |\n"
         "|---|---|---|---|---:|---:|---|---:|---:|---:|---:|---:|\n";
  layers([&](const Json& layer) {
    const Json& key = layer.at("key");
    out << "| " << plain(layer.value("id", Json())).substr(0, 8) << " | "
        << escaped(plain(layer.value("label", Json()))) << " | " << escaped(params_of(key)) << " | "
        << escaped(plain(key.value("sequence", Json()))) << " | "
        << plain(key.value("layer", Json())) << " | " << plain(key.value("seed", Json())) << " | "
        << escaped(status_of(layer));
    for (const char* number :
         {"/errors/relative_output_l2/mean", "/errors/residual_ratio/mean",
          "/errors/cancellation/mean", "/errors/half_heads/mean", "/memory/fraction"}) {
      out << " | " << significant(at_pointer(layer, number));
    }
    out << " |\n";
  });
}

}  // namespace kvbench
