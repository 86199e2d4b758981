#include "sweep/read_sweep.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "json/document.hpp"
#include "json/file_kind.hpp"
#include "json/input_file.hpp"
#include "json/pointer.hpp"
#include "sweep/axis.hpp"
#include "sweep/dump_paths.hpp"
#include "sweep/duplicate_cells.hpp"
#include "sweep/json_fields.hpp"
#include "sweep/scored_rows.hpp"
#include "sweep/storage_axis.hpp"
#include "sweep/sweep_entry.hpp"
#include "sweep/sweep_keys.hpp"
#include "system/error.hpp"
#include "system/shortened.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

constexpr auto kLastSeed = static_cast<std::int64_t>(kSeedRange.maximum);
constexpr const char* kWanted = "name a sweep file (JSON, configs/README.md)";
constexpr const char* kPromptRows = "prompt";
// Bytes of the sweep's text with all of its defaults. Journals have it in their header, whose limit
// is higher (results/journal_scan.cpp).
constexpr std::size_t kMaxText = std::size_t{48} << 20;
constexpr auto kMaxSeeds = static_cast<std::int64_t>(kSeedCountRange.maximum);

// Reads the file key by key into `config` and, next to it, `config.resolved`.
class Reader {
 public:
  Reader(const json& document, SweepConfig& config, ErrorList& errors)
      : document_(document), config_(config), resolved_(config.resolved), errors_(errors) {}

  // `folder`: where relative paths start; none: files are named as they were found once.
  void read(const std::optional<std::string>& folder,
            const std::vector<AlgorithmDescription>& algorithms) {
    resolved_ = json::object();
    read_object(document_, sweep_file_keys(), "", errors_);
    read_version();
    read_name();
    const std::size_t before_dumps = errors_.count();
    read_dumps(folder);
    dumps_known_ = errors_.count() == before_dumps;
    const std::size_t before_streams = errors_.count();
    read_select();
    read_replay();
    read_rows();
    config_.streams_known = errors_.count() == before_streams;
    read_seeds();
    read_storage(folder);
    read_memory();
    read_output();
    read_entries(folder, algorithms);
  }

  bool dumps_known() const { return dumps_known_; }

 private:
  const json* required(const std::string& key) {
    const json* given = member(document_, key);
    if (given == nullptr) {
      errors_.add("/" + key, "this key is missing; " + sweep_file_keys().at(key).missing);
    }
    return given;
  }

  // A member that is an object with these keys; null if absent or with an error.
  const json* section(const std::string& key, const SweepKeys& keys) {
    const json* given = member(document_, key);
    if (given == nullptr || !read_object(*given, keys, "/" + key, errors_)) return nullptr;
    return given;
  }

  void read_version() {
    resolved_["schema_version"] = 1;
    const json* given = required("schema_version");
    if (given != nullptr && *given != 1) {
      errors_.add("/schema_version",
                  "must be 1, the version this program reads, got " + shown(*given));
    }
  }

  void read_name() {
    const json* given = required("name");
    if (given == nullptr) return;
    const auto fits = [](const std::string& text) {
      const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-';
      });
      return plain && !text.empty() && text.size() <= kLongestName && text[0] != '.' &&
             text[0] != '-';
    };
    if (!given->is_string() || !fits(given->get_ref<const std::string&>())) {
      errors_.add("/name",
                  fmt::format("must be a folder's name of at most {} letters, digits, \".\", \"_\" "
                              "and \"-\" that begins with a letter, digit or \"_\", got {}",
                              kLongestName, shown(*given)));
      return;
    }
    config_.name = *given;
    resolved_["name"] = config_.name;
  }

  void read_dumps(const std::optional<std::string>& folder) {
    const json* given = required("dumps");
    if (given == nullptr) return;
    config_.dumps = folder ? read_dump_paths(*given, *folder, "/dumps", errors_) : found(*given);
    resolved_["dumps"] = config_.dumps;
  }

  // Files as they were found once, of a document that may have been changed since.
  std::vector<std::string> found(const json& given) {
    const bool texts =
        given.is_array() &&
        std::all_of(given.begin(), given.end(), [](const json& file) { return file.is_string(); });
    if (texts) return given.get<std::vector<std::string>>();
    errors_.add("/dumps", "must be a list of files, got " + shown(given));
    return {};
  }

  void read_select() {
    json& resolved = resolved_["select"];
    resolved = {{"sequences", "all"}, {"layers", "all"}, {"kv_heads", "all"}, {"tokens", "all"}};
    const json* given = section("select", select_keys());
    if (given == nullptr) return;
    config_.select = read_selection(*given, "/select", errors_);
    resolved.update(selection_json(config_.select));
    const json* tokens = member(*given, "tokens");
    if (tokens == nullptr || *tokens == "all") return;
    if (tokens->is_array() || tokens->is_object()) {
      if (const auto axis = read_integers(*tokens, kTokenRange, false, "/select/tokens", errors_)) {
        config_.tokens = *axis;
        resolved["tokens"] = *axis;
      }
    } else if (const auto one = read_integer(*tokens, kTokenRange, "/select/tokens", errors_)) {
      config_.tokens = {*one};
      resolved["tokens"] = *one;
    }
  }

  void read_replay() {
    resolved_["replay"] = {{"prompt_tokens", "default"}};
    const json* given = section("replay", replay_keys());
    const json* prompt = given == nullptr ? nullptr : member(*given, "prompt_tokens");
    if (prompt == nullptr || *prompt == "default") return;
    std::optional<Value> value = to_value(*prompt);
    const auto problem =
        value ? check_value(prompt_parameter(), *value)
              : std::optional<std::string>("must be a number or a word, got " + shown(*prompt));
    if (problem) {
      errors_.add("/replay/prompt_tokens", *problem);
      return;
    }
    config_.prompt_tokens = *value;
    resolved_["replay"]["prompt_tokens"] = value_json(*value);
  }

  void refuse_rows(const json& rows, const SweepKeys& keys, const std::string& place) {
    std::string forms = "\"all\"";
    for (const std::string& key : keys.names()) {
      forms += fmt::format(", {{\"{}\": {}}}", key, key == kPromptRows ? "one of these" : "m");
    }
    errors_.add(place, "must be " + forms + " or a list of rows, got " + shown(rows));
  }

  void read_rows() {
    const json* evaluate = section("evaluate", evaluate_keys());
    const json* rows = evaluate == nullptr ? nullptr : member(*evaluate, "rows");
    if (rows != nullptr) {
      config_.rows = read_rows_form(*rows, rows_keys(), "/evaluate/rows").value_or(config_.rows);
    }
    resolved_["evaluate"] = {{"rows", config_.rows}};
  }

  // "all", a list, or an object with one of `keys`.
  std::optional<json> read_rows_form(const json& rows, const SweepKeys& keys,
                                     const std::string& place) {
    if (rows == "all") return rows;
    if (rows.is_array()) {
      const auto list = read_integers(rows, kRowRange, false, place, errors_);
      return list ? std::optional<json>(*list) : std::nullopt;
    }
    if (rows.is_object()) read_object(rows, keys, place, errors_);
    if (!rows.is_object() || rows.size() != 1) {
      refuse_rows(rows, keys, place);
      return std::nullopt;
    }
    std::optional<json> read;
    for (const std::string& key : keys.names()) {
      const json* given = member(rows, key);
      if (given == nullptr) continue;
      if (key == kPromptRows) {
        const auto inner = read_rows_form(*given, prompt_rows_keys(), child(place, key));
        if (inner) read = json{{key, *inner}};
      } else if (const auto count =
                     read_integer(*given, kRowCountRange, child(place, key), errors_)) {
        read = json{{key, *count}};
      }
    }
    return read;
  }

  void read_seeds() {
    const json* given = member(document_, "seeds");
    std::int64_t first = 0;
    std::int64_t count = 1;
    if (given != nullptr && given->is_array()) {
      read_seed_list(*given);
      return;
    }
    if (given != nullptr && !given->is_object()) {
      errors_.add("/seeds",
                  "must be {\"first\": a, \"count\": m} or a list of seeds, got " + shown(*given) +
                      (given->is_number_unsigned()
                           ? fmt::format("; write {{\"count\": {0}}} for {0} seeds, or [{0}] for "
                                         "seed {0}",
                                         shown(*given))
                           : ""));
      return;
    }
    if (given != nullptr) {
      read_object(*given, seeds_keys(), "/seeds", errors_);
      const json* a = member(*given, "first");
      const json* m = member(*given, "count");
      std::optional<std::int64_t> read_first = first;
      std::optional<std::int64_t> read_count = count;
      if (a != nullptr) {
        read_first = read_integer(*a, kSeedRange, "/seeds/first", errors_);
      }
      if (m != nullptr) {
        read_count = read_integer(*m, kSeedCountRange, "/seeds/count", errors_);
      }
      if (!read_first || !read_count) return;
      first = *read_first;
      count = *read_count;
      if (first + count - 1 > kLastSeed) {
        errors_.add("/seeds", fmt::format("the last seed, {}, is not below 2^32; lower first or "
                                          "count",
                                          first + count - 1));
        return;
      }
    }
    for (std::int64_t seed = first; seed < first + count; ++seed) {
      config_.seeds.push_back(static_cast<std::uint32_t>(seed));
    }
    resolved_["seeds"] = {{"first", first}, {"count", count}};
  }

  void read_seed_list(const json& given) {
    if (given.size() > kMaxSeeds) {
      errors_.add("/seeds",
                  fmt::format("lists {} seeds; at most {} are allowed", given.size(), kMaxSeeds));
      return;
    }
    const auto seeds = read_integers(given, kSeedRange, false, "/seeds", errors_);
    if (!seeds) return;
    config_.seeds.assign(seeds->begin(), seeds->end());
    resolved_["seeds"] = *seeds;
  }

  void read_storage(const std::optional<std::string>& folder) {
    const json* given = member(document_, "storage");
    if (given == nullptr) return;
    auto storages = read_storages(*given, "/storage", folder, errors_);
    if (!storages) return;
    storages_ = std::move(*storages);
    json& resolved = resolved_["storage"] = json::array();
    for (const auto& storage : storages_) resolved.push_back(storage_json(storage.get()));
  }

  void read_memory() {
    const json* memory = section("memory", memory_keys());
    const json* bytes = memory == nullptr ? nullptr : member(*memory, "element_bytes");
    if (bytes != nullptr) {
      const std::string place = "/memory/element_bytes";
      const std::vector<int>& sizes = element_byte_sizes();
      const auto read = read_integer(*bytes, {1, 8}, place, errors_);
      if (read && std::find(sizes.begin(), sizes.end(), *read) == sizes.end()) {
        errors_.add(place, fmt::format("must be {}, got {}", fmt::join(sizes, " or "), *read));
      }
      config_.element_bytes = static_cast<int>(read.value_or(config_.element_bytes));
    }
    resolved_["memory"] = {{"element_bytes", config_.element_bytes}};
  }

  void read_output() {
    const json* output = section("output", output_keys());
    const json* rows = output == nullptr ? nullptr : member(*output, "rows");
    if (rows != nullptr) {
      config_.keep_rows = read_flag(*rows, "/output/rows", errors_).value_or(false);
    }
    const json* caches = output == nullptr ? nullptr : member(*output, "caches");
    if (caches != nullptr) {
      config_.keep_caches = read_flag(*caches, "/output/caches", errors_).value_or(false);
      if (config_.keep_caches && means_prompt_rows(config_.rows)) {
        errors_.add("/output/caches",
                    "cannot be true: rows of the prompt are scored (evaluate.rows), and a cache "
                    "file has rows by decode row; set it to false");
      }
    }
    resolved_["output"] = {{"rows", config_.keep_rows}, {"caches", config_.keep_caches}};
  }

  void read_entries(const std::optional<std::string>& folder,
                    const std::vector<AlgorithmDescription>& algorithms) {
    const json* written = required("algorithms");
    if (written == nullptr) return;
    const json one = written->is_object() ? json::array({*written}) : json();
    const json* given = written->is_object() ? &one : written;
    if (!given->is_array() || given->empty()) {
      errors_.add("/algorithms", "must be a list with at least one entry, got " + shown(*given));
      return;
    }
    resolved_["algorithms"] = json::array();
    double points_left = kMaxCells;
    double cells = 0.0;     // on one stream
    Index axis_values = 0;  // beyond one of each axis
    std::size_t bytes = exact_line(resolved_).size();
    for (std::size_t i = 0; i < given->size(); ++i) {
      if (errors_.is_full()) return;
      auto read = read_entry((*given)[i], algorithms, storages_, child("/algorithms", i), folder,
                             points_left, errors_);
      config_.wheres.emplace_back(child(read.entry.pointer, "where"), read.entry.where);
      if (!read.good) continue;
      points_left -= read.entry.points() * static_cast<double>(read.entry.storages.size());
      cells += read.entry.cells(config_.seeds.size());
      for (const auto& axis : read.entry.axes) {
        axis_values += std::ssize(axis.second) - 1;
      }
      bytes += exact_line(read.resolved).size();
      if (axis_values > kMaxAxisValues) {
        errors_.add("/algorithms", fmt::format("has more than {} values on its axes; shorten one",
                                               kMaxAxisValues));
        return;
      }
      if (bytes > kMaxText) {
        errors_.add("/algorithms",
                    fmt::format("makes a sweep of more than {} MiB, its defaults filled in, with "
                                "entry {} of {}; give ranges as axes, or split it",
                                kMaxText >> 20, i, given->size()));
        return;
      }
      config_.entries.push_back(std::move(read.entry));
      resolved_["algorithms"].push_back(std::move(read.resolved));
    }
    if (cells > kMaxCells) {
      errors_.add("/algorithms", fmt::format("describes {} cells for each KV head, and a sweep "
                                             "has at most {}; shorten an axis or the seeds",
                                             count_text(cells), kMaxCells));
    }
    refuse_repetitions(config_, errors_);
  }

  const json& document_;
  SweepConfig& config_;
  json& resolved_;
  ErrorList& errors_;
  Storages storages_ = {nullptr};
  bool dumps_known_ = false;
};

std::string folder_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return (error ? std::filesystem::path(path) : absolute).lexically_normal().parent_path().string();
}

}  // namespace

SweepConfig parse_sweep(const std::string& text, const std::string& path,
                        const std::vector<std::string>& sets,
                        const std::vector<AlgorithmDescription>& algorithms, ErrorPolicy policy) {
  refuse_hdf5(text, path, kWanted);
  ErrorList errors(path);
  json document = parse_document(text, path, errors);
  refuse_other_kind(document, "a sweep file", path, kWanted);
  if (!document.is_object()) {
    if (errors.none()) {
      errors.add("", "must be an object in braces, got " + std::string(document.type_name()));
    }
    errors.throw_if_any();
  }
  apply_sets(document, sets, errors);
  SweepConfig config;
  config.path = path;
  Reader reader(document, config, errors);
  reader.read(folder_of(path), algorithms);
  if (policy == ErrorPolicy::kThrow || !reader.dumps_known()) errors.throw_if_any();
  config.errors = errors.messages();
  return config;
}

SweepConfig resolved_sweep(const nlohmann::json& resolved, const std::string& place,
                           const std::vector<AlgorithmDescription>& algorithms) {
  ErrorList errors(place);
  SweepConfig config;
  config.path = place;
  Reader(resolved, config, errors).read(std::nullopt, algorithms);
  errors.throw_if_any();
  return config;
}

SweepConfig read_sweep(const std::string& path, const std::vector<std::string>& sets,
                       const std::vector<AlgorithmDescription>& algorithms, ErrorPolicy policy) {
  return parse_sweep(read_text(path, kWanted), path, sets, algorithms, policy);
}

}  // namespace kvbench
