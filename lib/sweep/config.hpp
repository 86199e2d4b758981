// A sweep, checked: what a sweep file says (configs/README.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "json/json.hpp"
#include "storage/storage.hpp"

namespace kvbench {

// A sweep of more cells than this is an error.
inline constexpr Index kMaxCells = 10'000'000;

// Which layers, heads or sequences; none = all.
struct Selection {
  std::optional<std::vector<std::string>> sequences;
  std::optional<std::vector<int>> layers;
  std::optional<std::vector<int>> kv_heads;

  bool operator==(const Selection&) const = default;
};

// One element of `algorithms`: the cross product of its axes, made point by point because a sweep
// may have millions.
struct SweepEntry {
  const AlgorithmDescription* algorithm = nullptr;
  std::shared_ptr<const AlgorithmDescription> composition;  // with `then`: what `algorithm` is
  // The parameters that apply, in the order of the table, each with one value or more.
  std::vector<std::pair<std::string, std::vector<Value>>> axes;
  Index seeded_points = 0;  // points whose cells run once per seed, whatever the storage
  // Storages that cross with the points; null: float.
  std::vector<std::shared_ptr<const Storage>> storages = {nullptr};
  // JSON pointer of them.
  std::string storage_pointer = "/storage";
  std::string label;     // default: the algorithm's id
  bool labelled = true;  // the label was given
  Selection where;
  std::string pointer;  // JSON pointer of the entry

  Index points() const;
  // Point `i` in [0, points()), the last axis fastest.
  Params point(Index i) const;
  // JSON pointer of a parameter, or of "then".
  std::string place_of(const std::string& name) const;
  // Whether a parameter is a file.
  bool names_files() const;
  // Calls visit() for each codec of its storages.
  void each_codec(const std::function<void(const CodecSetting&)>& visit) const;
  // Cells on one KV head.
  double cells(std::size_t seeds) const;
};

struct SweepConfig {
  std::string path;         // as given, for messages
  nlohmann::json resolved;  // axes as lists, defaults filled in, absolute dump paths
  std::string name;
  std::vector<std::string> dumps;  // absolute paths, globs expanded
  Selection select;
  std::vector<Index> tokens;  // the first N tokens of each sequence, for each N; empty: all
  // none: the default; integer: tokens; real: fraction of n; "dump": the attribute.
  std::optional<Value> prompt_tokens;
  nlohmann::json rows = "all";  // "all" | {"last": m} | {"every": m} | [rows], as given
  std::vector<std::uint32_t> seeds;
  int element_bytes = 2;
  bool keep_rows = false;
  bool keep_caches = false;
  std::vector<SweepEntry> entries;

  // The files of a kind (KeptCache, Calibration) that parameters of methods and codecs name, each
  // path once, in the order of the entries.
  template <class Content>
  std::vector<std::string> paths_of() const;
  // Makes these parameters refer to the open files, by path.
  template <class Content>
  void set_files(const std::vector<std::shared_ptr<const Content>>& files);

  // Every `where` with its pointer, also of entries that have an error otherwise.
  std::vector<std::pair<std::string, Selection>> wheres;
  std::vector<std::string> errors;  // with ErrorPolicy::kKeep: found so far
  bool streams_known = true;        // select, replay and evaluate have no error
};

}  // namespace kvbench
