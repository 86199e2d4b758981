// Writing dumps (format: data/FORMAT.md), one head at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/evidence.hpp"
#include "core/repeat.hpp"
#include "hdf5/element_type.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

struct RopeData {
  std::vector<double> inv_freq;  // d_rot / 2, per position in radians
  double theta = 10000.0;
  std::string layout = "half";  // or "interleaved"
  double attention_scaling = 1.0;
};

struct DumpHeader {
  std::string model;
  std::string producer;
  int n_layers = 1;
  int format_version = 1;  // 2 where a layer has a member of it
};

// How tensors are stored. `out` is float32, or float64 if the others are.
struct StorageOptions {
  ElementType type = ElementType::kFloat16;
  Index chunk_rows = 0;  // rows of a chunk of one head; 0: contiguous, or 1024 rows with gzip
  int gzip = 0;          // level 1 to 9, 0 = none
};

struct LayerLayout {
  Index query_heads = 1;
  Index kv_heads = 1;
  Index tokens = 1;
  Index query_rows = 1;  // Nq
  Index d = 1;
  Index dv = 1;
  Index out_rows = 0;  // 0: no `out`
  double scale = 1.0;
  Index window = 0;
  double softcap = 0.0;
  Index hidden = 0;       // columns of `wo` [Hq, dv, hidden], stored as `out` is; 0: no `wo`
  Index repeat_rows = 0;  // rows of `q_repeat` and `k_repeat`; 0: neither
  // Members of format 2.
  Index chunk = 0;
  bool causal = true;
  bool value_in_key = false;       // then there is no `v`
  std::vector<double> sinks = {};  // [Hq] or empty
  std::vector<double> alibi_slopes = {};
};

// Builds a dump under a temporary name next to `path` and puts it into place when finished
// (system/file.hpp), so that no half-written dump is ever seen. Throws IoError if the place cannot
// be written.
class DumpWriter {
 public:
  DumpWriter(const std::string& path, const DumpHeader& header, const StorageOptions& storage = {});
  ~DumpWriter();  // removes what was not finished
  DumpWriter(const DumpWriter&) = delete;
  DumpWriter& operator=(const DumpWriter&) = delete;

  void write_rope(const RopeData& rope);  // RoPE of the whole file
  void add_sequence(const std::string& name, std::optional<Index> prompt_tokens = std::nullopt,
                    const std::string& description = "",
                    const std::vector<std::int32_t>& token_ids = {});
  // Evidence, or repeat pass, of the sequence added last.
  void write_evidence(const Evidence& evidence);
  void write_repeat(const RepeatPass& pass);
  // Opens a layer of the sequence added last; heads are written to the layer added last.
  void add_layer(int index, const LayerLayout& layout);
  // One norm for each of the last positions of the layer added last.
  void write_residual_norms(const std::vector<double>& norms);
  // One head of tensor "q", "k", "v", "out", "wo", "q_repeat" or "k_repeat": all its rows,
  // row-major. Values are rounded to the stored type.
  void write_head(const std::string& tensor, Index head, const std::vector<double>& values);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbench
