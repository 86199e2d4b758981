#include "results/export_csv.hpp"

#include <fmt/format.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvbench {
namespace {

using Row = std::vector<std::pair<std::string, std::string>>;  // column, text

std::string text_of(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : to_line(value);
}

void flatten(const std::string& prefix, const Json& value, Row& row) {
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      flatten(prefix.empty() ? name : prefix + "." + name, member, row);
    }
    return;
  }
  row.emplace_back(prefix, text_of(value));
}

Row flat_row(const Json& cell) {
  Row row;
  for (const char* name : {"id", "status", "reason", "label"}) {
    row.emplace_back(name, text_of(cell.value(name, Json())));
  }
  for (const auto& [name, value] : cell.at("key").items()) flatten(name, value, row);
  for (const char* name : {"derived", "errors", "mass", "clusters", "memory", "counters"}) {
    const Json part = cell.value(name, Json());
    if (!part.is_object()) continue;
    Json numbers = part;
    numbers.erase("trajectory");
    flatten(name, numbers, row);
  }
  if (const auto timing = cell.find("timing"); timing != cell.end())
    flatten("timing", *timing, row);
  return row;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

// Columns in the order of first appearance, but a column stays behind those that stood before it
// in the row that brought it, so that params.* of several algorithms stay together.
class Columns {
 public:
  void add(const Row& row) {
    std::size_t place = 0;
    for (const auto& [name, text] : row) {
      const auto found = place_.find(name);
      if (found != place_.end()) {
        place = found->second + 1;
        continue;
      }
      names_.insert(names_.begin() + static_cast<std::ptrdiff_t>(place), name);
      for (std::size_t i = place; i < names_.size(); ++i) place_[names_[i]] = i;
      ++place;
    }
  }
  const std::vector<std::string>& names() const { return names_; }
  std::size_t place(const std::string& name) const { return place_.at(name); }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> place_;
};

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

void export_csv(const Json& results, std::ostream& out) {
  Columns columns;
  for (const Json& cell : results.at("cells")) columns.add(flat_row(cell));
  for (std::size_t i = 0; i < columns.names().size(); ++i) {
    out << (i == 0 ? "" : ",") << quoted(columns.names()[i]);
  }
  out << "\n";
  for (const Json& cell : results.at("cells")) {
    std::vector<std::string> fields(columns.names().size());
    for (auto& [name, text] : flat_row(cell)) fields[columns.place(name)] = std::move(text);
    for (std::size_t i = 0; i < fields.size(); ++i) out << (i == 0 ? "" : ",") << quoted(fields[i]);
    out << "\n";
  }
}

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
    out << "| " << text_of(cell.at("id")).substr(0, 8) << " | "
        << escaped(text_of(cell.at("label"))) << " | " << escaped(params) << " | "
        << escaped(text_of(key.at("sequence"))) << " | " << text_of(key.at("layer")) << " | "
        << text_of(key.at("kv_head")) << " | " << text_of(key.at("seed")) << " | "
        << escaped(status) << " | " << significant(at_pointer(cell, "/errors/relative_l2/mean"))
        << " | " << significant(at_pointer(cell, "/errors/relative_frobenius_error")) << " | "
        << significant(at_pointer(cell, "/memory/fraction")) << " |\n";
  }
}

}  // namespace kvbench
