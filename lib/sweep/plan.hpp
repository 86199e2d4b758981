// The plan: every cell of a sweep, in a fixed order, before anything runs.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/evidence.hpp"
#include "core/stream.hpp"
#include "json/json.hpp"
#include "sweep/config.hpp"
#include "sweep/planned_cells.hpp"

namespace kvbench {

// Facts that a plan needs of a dump; filled by the caller from lib/dump, so that lib/sweep does not
// depend on HDF5.
struct PlannedLayer {
  int index = 0;
  int kv_heads = 0;
  StreamShape shape;              // whole sequence; n_layers, scale, window filled in
  std::uint64_t chunk_bytes = 0;  // at most held to decode its chunks
  Index hidden = 0;               // columns of the output projection, 0 = the dump has none
  std::uint64_t wo_chunk_bytes = 0;
  Index residual_rows = 0;  // residual norms of the last positions of the whole sequence
};
struct PlannedSequence {
  std::string name;
  std::optional<Index> prompt_tokens;
  std::shared_ptr<const Evidence> evidence;  // null without
  std::vector<PlannedLayer> layers;
};
struct PlannedDump {
  std::string path;  // absolute
  std::string fingerprint;
  std::string state;  // state of the file, where the fingerprint is of samples (Dump::state)
  std::string model;
  int n_layers = 0;
  std::vector<PlannedSequence> sequences;
};

// A record of a whole layer to be: the cells of all its KV heads, of one setting and seed. Layers
// whose dump has the output projection, or evidence that a scored row asks for, have one of each
// setting that runs on all of their KV heads.
struct PlannedLayerRecord {
  std::string id;                  // 32 hex digits: hash of the canonical JSON of layer_record_key
  std::size_t group = 0;           // index into Plan::groups
  std::vector<std::size_t> cells;  // indices into Plan::cells by KV head, one of each
};

// Cells of one (dump, sequence, layer) and number of tokens: they share tensors and the exact
// reference.
struct WorkGroup {
  std::size_t dump = 0;  // index into Plan::dumps
  std::string sequence;
  int layer = 0;
  Index first_tokens = 0;         // the element of select.tokens that it is of; 0: all tokens
  int kv_heads = 0;               // KV heads of the layer, whether selected or not
  Index prompt = 0;               // P
  std::vector<Index> rows;        // scored rows, ascending; empty: all its cells are skipped
  StreamShape shape;              // cut to select.tokens
  std::uint64_t chunk_bytes = 0;  // at most held to decode its chunks
  CellRange cells;                // indices into Plan::cells
  Index hidden = 0;               // columns of the output projection, 0 = the dump has none
  std::uint64_t wo_chunk_bytes = 0;
  Index first_residual = 0;  // the dump has residual norms from this row on; all tokens: none
  std::shared_ptr<const Evidence> evidence;  // null without
  std::vector<std::size_t> layer_records;    // ascending indices into Plan::layer_records

  bool has_residual(Index row) const { return row >= first_residual; }
};

// Groups: dumps as listed, then sequences and layers in the dump's order, then select.tokens; none
// is empty. Cells: by
// group, then KV head, entry of the sweep, point of the entry, storage, seed.
struct Plan {
  std::string name;
  nlohmann::json config;  // fully resolved sweep; is itself a sweep file
  std::string hash;       // hash of the ordered cell ids
  std::vector<PlannedDump> dumps;
  std::size_t dump_layers = 0;  // layers of all sequences, whether they have cells or not
  std::vector<std::shared_ptr<const KeptCache>> caches;                   // that parameters name
  std::vector<std::shared_ptr<const Calibration>> calibrations;           // likewise
  std::vector<std::shared_ptr<const AlgorithmDescription>> compositions;  // that cells have
  std::vector<WorkGroup> groups;
  PlannedCells cells;
  std::size_t points = 0;                         // objects that the settings' parameters are
  std::vector<PlannedLayerRecord> layer_records;  // by group, then as their first cells
  nlohmann::json rows = "all";                    // evaluate.rows as given
  std::string device = "cpu";
  std::vector<std::string> only;  // globs that narrowed it
  int element_bytes = 2;
  bool keep_rows = false;
  bool keep_caches = false;
  bool tokens_vary = false;  // select.tokens is an axis: means are not taken over it
};

}  // namespace kvbench
