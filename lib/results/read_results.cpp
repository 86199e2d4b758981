#include "results/read_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "json/bounded_input.hpp"
#include "json/file_kind.hpp"
#include "json/input_file.hpp"
#include "json/nesting.hpp"
#include "results/results_file.hpp"

namespace kvbench {
namespace {

using Event = Json::parse_event_t;

constexpr const char* kWanted = "name a results.json";
// What a results file has below its root.
enum class Member {
  kCells,
  kLayers,
  kSummary,
  kConfig,
  kGroups,
  kFew,     // what grows with runs and files, not with cells
  kUnknown  // of which no objects and arrays are kept
};

Member member_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Member>, 9> kNames = {{
      {"cells", Member::kCells},
      {"layers", Member::kLayers},
      {"summary", Member::kSummary},
      {"config", Member::kConfig},
      {"groups", Member::kGroups},
      {"provenance", Member::kFew},
      {"plan", Member::kFew},
      {"dumps", Member::kFew},
      {"caches", Member::kFew},
  }};
  const auto* found = std::ranges::find(kNames, name, &std::pair<std::string_view, Member>::first);
  return found == kNames.end() ? Member::kUnknown : found->second;
}

// Bytes that those take together (json_bytes), and the sweep.
constexpr std::size_t kMostOfFew = std::size_t{96} << 20;
constexpr std::size_t kMostOfConfig = std::size_t{208} << 20;
// Objects and arrays that lie in one, below the records and entries that the members list: the
// parser looks through all of them at the end of each.
constexpr std::size_t kMostHeld = 10'000;

// Bytes that an event of the parser adds to the memory of its document.
std::size_t bytes_of(Event event, const Json& parsed) {
  const auto letters = [&] {
    const auto* text = parsed.get_ptr<const std::string*>();
    return text == nullptr ? 0 : text->size();
  };
  switch (event) {
    case Event::key:
      return json_bytes::kName + letters();
    case Event::array_start:
      return json_bytes::kList + json_bytes::kValue;
    case Event::object_start:
      return json_bytes::kObject + json_bytes::kValue;
    case Event::value:
      return json_bytes::kValue + (parsed.is_string() ? json_bytes::kText + letters() : 0);
    default:
      return 0;
  }
}

bool has_known_major(const Json& version) {
  return version.is_string() &&
         version.get<std::string>().substr(0, 2) == std::string(kResultsSchema, 2);
}

bool begins(Event event) { return event == Event::object_start || event == Event::array_start; }

bool ends(Event event) {
  return event == Event::object_end || event == Event::array_end || event == Event::value;
}

// InputError for a file that is not complete JSON, with its kind if it can be recognised. `at`:
// bytes read until then.
[[noreturn]] void refuse_unreadable(const std::string& path, std::size_t at) {
  std::ifstream in(path, std::ios::binary);
  std::string beginning(8, '\0');
  in.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<std::size_t>(in.gcount()));
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

// Elements that the parser does not keep, by the name of their array: it looks through all that it
// has at the end of each.
class Elements {
 public:
  void add(const std::string& name, Json&& element) {
    kept_.try_emplace(name, Json::array()).first->second.push_back(std::move(element));
  }

  // Puts them back into the arrays of `object`, which the parser left empty. A name that came twice
  // may be of something else by now.
  void put_back(Json& object) {
    if (!object.is_object()) return;
    for (auto& [name, elements] : kept_) {
      const auto found = object.find(name);
      if (found != object.end() && found->is_array()) *found = std::move(elements);
    }
  }

 private:
  std::map<std::string, Json> kept_;
};

// One reading of one file.
class Reader {
 public:
  Reader(const std::string& path, const ResultsParts& parts, bool with_summary)
      : path_(path), parts_(parts), with_summary_(with_summary) {}

  Json read() {
    Json results = parse();
    check(results);
    elements_.put_back(results);
    if (const auto config = results.find("config"); config != results.end()) {
      of_config_.put_back(*config);
    }
    return results;
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(fmt::format_string<Parts...> what, Parts&&... parts) const {
    throw InputError(path_ + ": " + fmt::format(what, std::forward<Parts>(parts)...) + "; " +
                     kWanted);
  }

  Json parse() {
    std::error_code ignored;
    if (std::filesystem::is_directory(path_, ignored)) {
      throw InputError(path_ + ": is a folder; name the results.json in it");
    }
    refuse_device(path_, kWanted);
    std::ifstream in(path_);
    if (!in) throw InputError(system_error(path_, "open") + "; " + kWanted);
    BoundedInput input(in, kLongestText,
                       [&] { refuse("has a text, number or space of more than 1 MiB"); });
    try {
      Json results = Json::parse(
          input.begin(), input.end(),
          [&](int depth, Event event, Json& parsed) { return is_kept(depth, event, parsed); });
      // The parser takes a byte of value 0 for the end, and leaves the rest unread.
      if (input.last() == '\0') refuse("has a byte of value 0 where its JSON ends");
      return results;
    } catch (const std::ios_base::failure&) {
      refuse("cannot be read: the system reports an error");
    } catch (const Json::parse_error& error) {
      refuse_unreadable(path_, error.byte);
    } catch (const Json::exception& error) {
      refuse("cannot be read ({})", error.what());
    }
  }

  // What the parser asks of each of its events. Passes records on.
  bool is_kept(int depth, Event event, Json& parsed) {
    check_limits(depth, event);
    if (depth == 1) return enter_member(event, parsed);
    if (depth == 0) return true;
    if (is_left_out()) return false;
    count(depth, event, parsed);
    if (member_ == Member::kConfig && depth == 2 && !is_array_) {
      if (event == Event::key) name_in_config_ = parsed.get<std::string>();
      is_array_of_config_ = event == Event::array_start;
    }
    if (member_ == Member::kConfig && depth == 3 && is_array_of_config_ && ends(event)) {
      of_config_.add(name_in_config_, std::move(parsed));
      return false;
    }
    if (depth != 2 || !is_array_ || !ends(event)) return true;
    record_ = 0;
    if (const auto* take = taker(); take == nullptr) {
      elements_.add(name_, std::move(parsed));
    } else if (is_readable_) {
      (*take)(std::move(parsed));
    }
    return false;
  }

  // The parser looks through all names of an object for each that it adds.
  void check_limits(int depth, Event event) {
    const auto level = static_cast<std::size_t>(depth);
    if (level > kDeepestRecord) refuse("nests deeper than {} levels", kDeepestRecord);
    if (level == 0 && event == Event::array_start) refuse("is not a kvbench results file");
    if (event == Event::object_start) names_[level] = 0;
    if (event == Event::key && ++names_[level - 1] > kMostNames) {
      refuse("has an object of more than {} members", kMostNames);
    }
  }

  bool enter_member(Event event, const Json& parsed) {
    if (event == Event::key) {
      name_ = parsed.get<std::string>();
      member_ = member_named(name_);
    }
    if (begins(event)) is_array_ = event == Event::array_start;
    if (event == Event::value && name_ == "schema_version") {
      is_readable_ = has_known_major(parsed);
    }
    return true;
  }

  // What an element of the member goes to; null for members that are kept.
  const std::function<void(Json&&)>* taker() const {
    switch (member_) {
      case Member::kCells:
        return &parts_.cell;
      case Member::kLayers:
        return &parts_.layer;
      case Member::kGroups:
        return &parts_.group;
      default:
        return nullptr;
    }
  }

  bool is_left_out() const {
    switch (member_) {
      case Member::kCells:
      case Member::kLayers:
      case Member::kGroups:
        return !*taker();
      case Member::kSummary:
        return !with_summary_;
      case Member::kConfig:
        return !parts_.config;
      case Member::kFew:
        return false;
      case Member::kUnknown:
        return true;
    }
    return true;
  }

  void count(int depth, Event event, const Json& parsed) {
    if (begins(event)) {
      const auto level = static_cast<std::size_t>(depth);
      held_[level] = 0;
      if (depth > (member_ == Member::kConfig ? 3 : 2) && ++held_[level - 1] > kMostHeld) {
        refuse("/{} has more than {} objects in one array", name_, kMostHeld);
      }
    }
    const auto add = [&](std::size_t& bytes, std::size_t most) {
      bytes += bytes_of(event, parsed);
      if (bytes > most) refuse("/{} takes more than {} MiB of memory", name_, most >> 20);
    };
    if (member_ == Member::kFew) add(few_, kMostOfFew);
    if (member_ == Member::kConfig) add(config_, kMostOfConfig);
    if (taker() != nullptr) add(record_, kMostRecordMemory);
  }

  void check(const Json& results) const {
    if (!results.is_object() || results.value("kind", Json()) != kResultsKind ||
        !results.contains("cells") || !results["cells"].is_array()) {
      refuse_other_kind(results, "a results file", path_, kWanted);
      refuse("is not a kvbench results file");
    }
    const Json version = results.value("schema_version", Json());
    if (!has_known_major(version)) {
      throw InputError(path_ + ": has schema version " + to_line(version) +
                       ", this program reads 1.x; run the sweep again with this version");
    }
    const auto layers = results.find("layers");
    if (layers != results.end() && !layers->is_array()) {
      throw InputError(path_ +
                       ": /layers: must be an array of records of whole layers; write the file "
                       "anew with `kvbench run` or `kvbench merge`");
    }
  }

  const std::string& path_;
  const ResultsParts& parts_;
  bool with_summary_;

  std::string name_;  // of the member of the root in which the parser is
  Member member_ = Member::kUnknown;
  bool is_array_ = false;
  std::string name_in_config_;
  bool is_array_of_config_ = false;
  bool is_readable_ = true;  // its schema version, where that was read
  std::array<std::size_t, kDeepestRecord + 1> names_ = {}, held_ = {};  // by depth
  std::size_t few_ = 0, config_ = 0, record_ = 0;                       // bytes
  Elements elements_, of_config_;
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
