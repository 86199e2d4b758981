// Numbers that a method takes from other texts than the one it compresses, by layer and KV head: a
// calibration. Its file: data/FORMAT.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.hpp"

namespace kvbench {

struct CalibratedArray {
  std::vector<Index> shape;
  std::vector<double> values;
};

// Arrays of one KV head, by names that the method gives them.
using CalibratedNumbers = std::map<std::string, CalibratedArray>;

// The streams that one KV head has on several texts, one at a time and as often as wanted; `prompt`
// tokens of each count.
struct CalibrationTexts {
  Index d = 0;
  int heads_per_kv = 1;
  std::function<void(const std::function<void(const Stream&, Index prompt)>&)> for_each;
};
// The stream alone, which must outlive the result: a prompt that calibrates itself.
CalibrationTexts one_text(const Stream& stream, Index prompt);

// Hashes of the keys of the first 1, 2, 4, .. tokens, up to `tokens`: a text is known by them.
using KeyMarks = std::vector<std::int64_t>;
KeyMarks key_marks(const ConstMatrix& keys, Index tokens);

struct CalibratedText {
  std::string dump;  // fingerprint
  std::string sequence;
  Index tokens = 0;
};

struct CalibratedLayer {
  int index = 0;
  int kv_heads = 0;
  int heads_per_kv = 1;
  Index d = 0;
  std::shared_ptr<const Rope> rope;
  std::vector<std::vector<KeyMarks>> marks;  // by KV head and text
};

struct Calibration {
  std::string path;
  std::string fingerprint;  // fingerprint of its content
  std::string method;
  std::string params;  // JSON object of the parameters that the numbers depend on
  std::string model;   // the dumps' name of it
  int n_layers = 0;    // layers of the model
  std::vector<CalibratedText> texts;
  std::vector<CalibratedLayer> layers;  // ascending
  // Reads one array of a KV head; null where only the above is known. Throws CellError where it is
  // missing or has another shape.
  std::function<std::vector<double>(const StreamId&, const std::string& name,
                                    const std::vector<Index>& shape)>
      read;

  const CalibratedLayer* find(int layer) const;  // null: not calibrated
  // Whether one of the texts is the stream's own: both have the same keys in their first 2^k
  // tokens, as many as both have.
  bool has_text(const Stream& stream) const;
};

// Why the numbers are not of such a layer of a model, with a remedy; nullopt if they are, or if the
// layer is not calibrated. An empty `model` is not compared, nor the number of layers, and may be
// of some KV heads alone.
std::optional<std::string> misfit(const Calibration& calibration, const std::string& model,
                                  int layer, int kv_heads, const StreamShape& shape);

}  // namespace kvbench
