#include "results/export_csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
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

constexpr const char* kFloat = "float";
// Between a label and its storage.
constexpr const char* kBeforeStorage = " | ";
constexpr const char* kStorage = "storage";

bool is_stored(const Json& cell) { return cell.at("key").contains(kStorage); }

// "K q8_0 V q4_0", as the label ends; float without one.
std::string storage_text(const Json& cell) {
  if (!is_stored(cell)) return kFloat;
  const std::string label = text_of(cell.value("label", Json()));
  const std::size_t bar = label.rfind(kBeforeStorage);
  if (bar == std::string::npos) return to_line(cell.at("key").at(kStorage));
  return label.substr(bar + std::string(kBeforeStorage).size());
}

// storage.keys.codec and the like: a codec for every cell, float too.
void flatten_storage(const Json& cell, Row& row) {
  for (const char* tensor : {"keys", "values"}) {
    const std::string name = fmt::format("{}.{}", kStorage, tensor);
    const Json none = {{"codec", kFloat}};
    const Json stored = is_stored(cell) ? cell.at("key").at(kStorage) : Json::object();
    const Json codec = stored.is_object() ? stored.value(tensor, none) : none;
    flatten(name, codec.is_object() ? codec : Json{{"codec", codec}}, row);
  }
}

// `with_codecs`: with columns of codecs.
Row flat_row(const Json& cell, bool with_codecs) {
  Row row;
  for (const char* name : {"id", "status", "reason", "label"}) {
    row.emplace_back(name, text_of(cell.value(name, Json())));
  }
  row.emplace_back(kStorage, storage_text(cell));
  for (const auto& [name, value] : cell.at("key").items()) {
    if (name != kStorage) flatten(name, value, row);
  }
  if (with_codecs) flatten_storage(cell, row);
  for (const char* name : {"derived", "errors", "trivial", "mass", "evidence", "clusters", "memory",
                           "traffic", "counters"}) {
    const Json part = cell.value(name, Json());
    if (!part.is_object()) continue;
    Json numbers = part;
    for (const char* list : {"trajectory", "lost"}) numbers.erase(list);
    const Json fraction = part.value("fraction", Json());
    if (std::string_view(name) == "memory" && fraction.is_number()) {
      numbers["compression_ratio"] = 1.0 - fraction.get<double>();
    }
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
  static constexpr const char* kSections[] = {
      "",         "params",   "storage", "derived", "errors",   "trivial", "mass",
      "evidence", "clusters", "memory",  "traffic", "counters", "timing"};

  static std::string section_of(const std::string& name) {
    const std::string before_dot = name.substr(0, name.find('.'));
    const auto* known = std::find(std::begin(kSections), std::end(kSections), before_dot);
    return known == std::end(kSections) || before_dot == name ? "" : before_dot;
  }

  std::map<std::string, std::vector<std::string>> sections_;
};

void write_rows(const Json& records, std::ostream& out) {
  Columns columns;
  const bool with_codecs = std::any_of(records.begin(), records.end(), is_stored);
  for (const Json& record : records) columns.add(flat_row(record, with_codecs));
  const std::vector<std::string> names = columns.names();
  std::unordered_map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < names.size(); ++i) {
    place[names[i]] = i;
    out << (i == 0 ? "" : ",") << csv_field(names[i]);
  }
  out << "\n";
  for (const Json& record : records) {
    std::vector<std::string> fields(names.size());
    for (auto& [name, text] : flat_row(record, with_codecs)) {
      fields[place.at(name)] = std::move(text);
    }
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
