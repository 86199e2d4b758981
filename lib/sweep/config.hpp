// The sweep file, parsed and checked.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace kvbench {

// Which layers, heads or sequences; none = all.
struct Selection {
  std::optional<std::vector<std::string>> sequences;
  std::optional<std::vector<int>> layers;
  std::optional<std::vector<int>> kv_heads;
};

struct SweepEntry {
  const AlgorithmDescription* algorithm = nullptr;
  std::vector<Params> points;  // the cross product of its axes, in order
  std::string label;           // default: the algorithm's id
  Selection where;
  std::string pointer;  // JSON pointer of the entry
};

struct SweepConfig {
  std::string path;        // as given, for messages
  nlohmann::json source;   // the document as read, --set applied
  std::string name;
  std::vector<std::string> dumps;  // absolute paths, globs expanded
  Selection select;
  Index tokens = 0;  // first so many tokens; 0 = all
  // none: the default; integer: tokens; real: fraction of n; "dump": the attribute.
  std::optional<Value> prompt_tokens;
  // "all" | {"last": m} | {"every": m} | [rows], as given (defaults filled in).
  nlohmann::json rows = "all";
  std::vector<std::uint32_t> seeds;
  int element_bytes = 2;
  bool keep_rows = false;
  std::vector<SweepEntry> entries;
};

// Reads and checks a sweep file. `sets`: "pointer=value" overrides, applied before checking.
// Throws InputError with all faults, each "file: /json/pointer: what; remedy".
SweepConfig read_sweep(const std::string& path, const std::vector<std::string>& sets = {});

}  // namespace kvbench
