#include "results/export_csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
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
      flatten(prefix.empty() ? name : fmt::format("{}.{}", prefix, name), member, row);
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
  for (const char* name : {"derived", "errors", "trivial", "mass", "evidence", "clusters", "memory",
                           "traffic", "counters"}) {
    const Json part = cell.value(name, Json());
    if (!part.is_object()) continue;
    Json numbers = part;
    for (const char* list : {"trajectory", "lost"}) numbers.erase(list);
    flatten(name, numbers, row);
  }
  if (const auto timing = cell.find("timing"); timing != cell.end())
    flatten("timing", *timing, row);
  return row;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

// All columns of some rows: by section, and within one in the order of first appearance, but a
// column stays behind those that stood before it in the row that brought it.
class Columns {
 public:
  void add(const Row& row) {
    std::map<std::string, std::size_t> places;  // per section, behind the row's last column there
    for (const auto& [name, text] : row) {
      const std::string section = section_of(name);
      std::vector<std::string>& names = sections_[section];
      std::size_t& place = places[section];
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) {
        names.insert(names.begin() + static_cast<std::ptrdiff_t>(place), name);
      } else {
        place = static_cast<std::size_t>(found - names.begin());
      }
      ++place;
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const char* section : kSections) {
      const auto found = sections_.find(section);
      if (found != sections_.end())
        all.insert(all.end(), found->second.begin(), found->second.end());
    }
    return all;
  }

 private:
  // The first holds the key's own entries, objects among them (rows.every).
  static constexpr const char* kSections[] = {"",        "params",  "derived",  "errors",
                                              "trivial", "mass",    "evidence", "clusters",
                                              "memory",  "traffic", "counters", "timing"};

  static std::string section_of(const std::string& name) {
    const std::string before_dot = name.substr(0, name.find('.'));
    const auto* known = std::find(std::begin(kSections), std::end(kSections), before_dot);
    return known == std::end(kSections) || before_dot == name ? "" : before_dot;
  }

  std::map<std::string, std::vector<std::string>> sections_;
};

void write_rows(const Json& records, std::ostream& out) {
  Columns columns;
  for (const Json& record : records) columns.add(flat_row(record));
  const std::vector<std::string> names = columns.names();
  std::unordered_map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < names.size(); ++i) {
    place[names[i]] = i;
    out << (i == 0 ? "" : ",") << csv_field(names[i]);
  }
  out << "\n";
  for (const Json& record : records) {
    std::vector<std::string> fields(names.size());
    for (auto& [name, text] : flat_row(record)) fields[place.at(name)] = std::move(text);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      out << (i == 0 ? "" : ",") << csv_field(fields[i]);
    }
    out << "\n";
  }
}

}  // namespace

void export_csv(const Json& results, std::ostream& out) { write_rows(results.at("cells"), out); }

void export_layers_csv(const Json& results, std::ostream& out) {
  write_rows(results.value("layers", Json::array()), out);
}

}  // namespace kvbench
