#include "results/read_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "json/file_kind.hpp"
#include "json/input_file.hpp"
#include "results/results_kind.hpp"
#include "system/error.hpp"
#include "system/file.hpp"

namespace kvbench {
namespace {

constexpr const char* kWanted = "name a results.json";

// Members of a results file's root.
enum class Member {
  kCells,
  kLayers,
  kSummary,
  kConfig,
  kGroups,
  kOther,   // members that grow with runs and files, not with cells
  kUnknown  // its objects and arrays are not kept
};

Member member_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Member>, 10> kNames = {{
      {"cells", Member::kCells},
      {"layers", Member::kLayers},
      {"summary", Member::kSummary},
      {"config", Member::kConfig},
      {"groups", Member::kGroups},
      {"provenance", Member::kOther},
      {"plan", Member::kOther},
      {"dumps", Member::kOther},
      {"calibrations", Member::kOther},
      {"caches", Member::kOther},
  }};
  const auto* found = std::ranges::find(kNames, name, &std::pair<std::string_view, Member>::first);
  return found == kNames.end() ? Member::kUnknown : found->second;
}

// The file that `path` names: a folder's is its results.json.
std::string file_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  std::string file = (std::filesystem::path(path) / "results.json").string();
  if (std::filesystem::exists(file, ignored)) return file;
  throw InputError(path + ": is a folder without results.json; " + kWanted);
}

bool has_known_major(const Json& version) {
  return version.is_string() &&
         version.get<std::string>().substr(0, 2) == std::string(kResultsSchema, 2);
}

// InputError for a file that is not complete JSON, with its kind if it can be recognised. `at`:
// bytes read until then.
[[noreturn]] void refuse_unreadable(const std::string& path, std::size_t at) {
  std::ifstream in(path, std::ios::binary);
  std::string beginning(8, '\0');
  in.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(in.gcount());
  if (beginning.empty()) throw InputError(path + ": is empty; " + kWanted);
  refuse_hdf5(beginning, path, kWanted);
  std::error_code ignored;
  if (beginning[0] == '{' && at > std::filesystem::file_size(path, ignored)) {
    throw InputError(path + ": is truncated, its JSON ends at byte " + std::to_string(at - 1) +
                     "; copy it again, or repeat its `kvbench run` or `kvbench merge`, which "
                     "rewrites it from the journal");
  }
  throw InputError(path + ": invalid JSON at byte " + std::to_string(at) + "; " + kWanted);
}

// One reading of one file.
class Reader : public nlohmann::json_sax<Json> {
 public:
  Reader(const std::string& path, const ResultsParts& parts, bool with_summary)
      : path_(file_of(path)), parts_(parts), with_summary_(with_summary) {}

  Json read() {
    parse();
    check();
    return std::move(root_);
  }

  // Functions that the parser calls for the parts of the text.
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has none

  bool start_object(std::size_t) override { return begin(Json::object()); }
  bool start_array(std::size_t) override {
    if (open_.empty()) refuse("is not a kvbench results file");
    return begin(Json::array());
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool key(string_t& name) override {
    name_ = std::move(name);
    if (open_.size() == 1) {
      member_ = member_named(name_);
      member_name_ = name_;
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const auto* syntax = dynamic_cast<const Json::parse_error*>(&error);
    if (syntax == nullptr) refuse("cannot be read ({})", error.what());
    refuse_unreadable(path_, syntax->byte);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(fmt::format_string<Parts...> what, Parts&&... parts) const {
    throw InputError(path_ + ": " + fmt::format(what, std::forward<Parts>(parts)...) + "; " +
                     kWanted);
  }

  void parse() {
    refuse_device(path_, kWanted);
    std::ifstream in(path_);
    if (!in) throw InputError(system_error(path_, "open") + "; " + kWanted);
    try {
      read_events(in, *this);
    } catch (const std::ios_base::failure&) {
      refuse("cannot be read: the system reports an error");
    }
    // The parser takes a byte of value 0 for the end, and leaves the rest unread.
    if (!in.eof()) refuse("has a byte of value 0 where its JSON ends");
  }

  template <class Value>
  bool add(Value&& value) {
    if (is_left_out()) return true;
    Json& added = put(std::forward<Value>(value));
    if (open_.size() == 1 && member_name_ == "schema_version") {
      is_readable_ = has_known_major(added);
    }
    pass_on();
    return true;
  }

  bool begin(Json&& container) {
    open_.push_back(is_left_out() ? nullptr : &put(std::move(container)));
    return true;
  }

  bool end() {
    const bool is_kept = open_.back() != nullptr;
    open_.pop_back();
    if (is_kept) pass_on();
    return true;
  }

  // Whether the parser is in an array whose elements go to a function.
  bool is_in_list() const {
    return open_.size() == 2 && taker() != nullptr && open_.back()->is_array();
  }

  // Puts a value where the parser is. Valid until the next one of the same object or array.
  Json& put(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (is_in_list()) return element_ = std::move(value);
    Json& parent = *open_.back();
    if (!parent.is_array()) return parent[name_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }

  // Hands an element over that has come to its end.
  void pass_on() {
    if (!is_in_list()) return;
    if (is_readable_) (*taker())(std::move(element_));
  }

  // Function that takes an element of the member; null for members that are kept.
  const std::function<void(Json&&)>* taker() const {
    switch (member_) {
      case Member::kCells:
        return &parts_.cell;
      case Member::kLayers:
        return &parts_.layer;
      case Member::kGroups:
        return &parts_.group;
      case Member::kSummary:
        return with_summary_ ? nullptr : &parts_.summary;
      default:
        return nullptr;
    }
  }

  // Whether what comes next is below a member of the root that nobody wants. Such a member keeps an
  // empty object or array.
  bool is_left_out() const {
    if (open_.size() < 2) return false;
    if (open_.back() == nullptr) return true;
    switch (member_) {
      case Member::kCells:
      case Member::kLayers:
      case Member::kGroups:
        return !*taker();
      case Member::kSummary:
        return !with_summary_ && !parts_.summary;
      case Member::kConfig:
        return !parts_.config;
      case Member::kOther:
        return false;
      case Member::kUnknown:
        return true;
    }
    return true;
  }

  void check() const {
    if (!root_.is_object() || root_.value("kind", Json()) != kResultsKind ||
        !root_.contains("cells") || !root_["cells"].is_array()) {
      refuse_other_kind(root_, "a results file", path_, kWanted);
      refuse("is not a kvbench results file");
    }
    const Json version = root_.value("schema_version", Json());
    if (!has_known_major(version)) {
      throw InputError(path_ + ": has schema version " + to_line(version) +
                       ", this program reads 1.x; run the sweep again with this version");
    }
    const auto layers = root_.find("layers");
    if (layers != root_.end() && !layers->is_array()) {
      throw InputError(path_ +
                       ": /layers: must be an array of records of whole layers; write the file "
                       "anew with `kvbench run` or `kvbench merge`");
    }
  }

  const std::string path_;
  const ResultsParts& parts_;
  bool with_summary_;

  Json root_, element_;
  std::vector<Json*> open_;  // objects and arrays that have not ended; null: left out
  std::string name_;         // that came last
  std::string member_name_;  // member of the root in which the parser is
  Member member_ = Member::kUnknown;
  bool is_readable_ = true;  // its schema version, where that was read
};

}  // namespace

Json read_results(const std::string& path, const ResultsParts& parts) {
  return Reader(path, parts, false).read();
}

Json read_results(const std::string& path) {
  Json cells = Json::array(), layers = Json::array(), groups = Json::array();
  const ResultsParts all = {.cell = [&](Json&& cell) { cells.push_back(std::move(cell)); },
                            .layer = [&](Json&& layer) { layers.push_back(std::move(layer)); },
                            .group = [&](Json&& group) { groups.push_back(std::move(group)); },
                            .config = true};
  Json results = Reader(path, all, true).read();
  results["cells"] = std::move(cells);
  if (results.contains("layers")) results["layers"] = std::move(layers);
  if (results.contains("groups")) results["groups"] = std::move(groups);
  return results;
}

}  // namespace kvbench
