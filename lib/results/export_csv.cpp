#include "results/export_csv.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "system/error.hpp"

namespace kvbench {
namespace {

std::string text_of(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : to_line(value);
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
  void add(const FlatRow& row) {
    std::map<std::string, std::size_t> places;  // per section, behind the row's last column there
    for (const auto& [name, value] : row) {
      const std::string section = section_of(name);
      std::vector<std::string>& names = sections_[section];
      std::size_t& place = places[section];
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) {
        names.insert(names.begin() + place, name);
      } else {
        place = found - names.begin();
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

// Lists of columns seen so far: one row of each list is enough.
class SeenColumns {
 public:
  bool is_new(const FlatRow& row) {
    std::string names;
    for (const auto& [name, value] : row) (names += name) += ',';
    return seen_.insert(std::move(names)).second;
  }

 private:
  std::unordered_set<std::string> seen_;
};

bool is_of_codecs(const std::string& name) {
  return name.starts_with("storage.keys") || name.starts_with("storage.values");
}

}  // namespace

void export_csv(const VisitRecords& records, std::ostream& out) {
  Columns columns;
  SeenColumns seen;
  bool with_codecs = false;
  records([&](const Json& record) {
    with_codecs = with_codecs || is_stored(record);
    const FlatRow row = flat_row(record, true);
    if (seen.is_new(row)) columns.add(row);
  });
  std::vector<std::string> names = columns.names();
  if (!with_codecs) std::erase_if(names, is_of_codecs);
  std::unordered_map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < names.size(); ++i) {
    place[names[i]] = i;
    out << (i == 0 ? "" : ",") << csv_field(names[i]);
  }
  out << "\n";
  records([&](const Json& record) {
    std::vector<std::string> fields(names.size());
    for (const auto& [name, value] : flat_row(record, with_codecs)) {
      const auto found = place.find(name);
      if (found == place.end()) {
        throw InputError("the results changed while they were exported; export them again");
      }
      fields[found->second] = text_of(value);
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      out << (i == 0 ? "" : ",") << csv_field(fields[i]);
    }
    out << "\n";
  });
}

}  // namespace kvbench
