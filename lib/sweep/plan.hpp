// The plan: every cell of a sweep, in a fixed order, before anything runs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "core/stream.hpp"
#include "sweep/config.hpp"

namespace kvbench {

// What a plan needs to know of a dump; filled by the caller from lib/dump, so that lib/sweep does
// not depend on HDF5.
struct PlannedLayer {
  int index = 0;
  int kv_heads = 0;
  StreamShape shape;  // whole sequence; n_layers, scale, window filled in
};
struct PlannedSequence {
  std::string name;
  std::optional<Index> prompt_tokens;
  std::vector<PlannedLayer> layers;
};
struct PlannedDump {
  std::string path;  // absolute
  std::string fingerprint;
  std::string model;
  int n_layers = 0;
  std::vector<PlannedSequence> sequences;
};

struct PlannedCell {
  std::string id;      // 32 hex digits: hash of the canonical JSON of `key`
  nlohmann::json key;  // interface of results.json, "key"
  std::string label;
  std::size_t group = 0;  // index into Plan::groups
  int kv_head = 0;
  const AlgorithmDescription* algorithm = nullptr;
  Params params;
  std::optional<std::uint32_t> seed;       // none: deterministic
  std::optional<std::string> skip_reason;  // set: will not run

  // algorithm/label/sequence/layer/head
  std::string path() const;
};

// Cells of one (dump, sequence, layer): they share tensors and the exact reference.
struct PlannedGroup {
  std::size_t dump = 0;  // index into Plan::dumps
  std::string sequence;
  int layer = 0;
  int kv_heads = 0;
  Index prompt = 0;         // P
  std::vector<Index> rows;  // scored rows
  StreamShape shape;        // cut to select.tokens
  std::vector<std::size_t> cells;
};

struct Plan {
  std::string name;
  nlohmann::json config;  // fully resolved sweep
  std::string hash;       // of the ordered cell ids
  std::vector<PlannedDump> dumps;
  std::vector<PlannedGroup> groups;
  std::vector<PlannedCell> cells;
  int element_bytes = 2;
  bool keep_rows = false;
};

// Crosses a checked sweep with its dumps. `only`: globs on cell ids and paths ('*' stays within a
// path component), empty = all. Throws InputError with every fault found (unknown layers or heads,
// too many tokens, prompt out of range, the same cell described twice, equal fingerprints).
Plan make_plan(const SweepConfig& config, std::vector<PlannedDump> dumps,
               const std::vector<std::string>& only = {});

}  // namespace kvbench
