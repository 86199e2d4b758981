#include "core/calibration.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "system/hash.hpp"

namespace kvbench {
namespace {

bool same_rotation(const Rope* a, const Rope* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->inv_freq == b->inv_freq && a->interleaved == b->interleaved;
}

std::string of_other(const char* what, Index calibrated, Index here) {
  return "was calibrated for " + std::string(what) + " = " + std::to_string(calibrated) +
         ", but it is " + std::to_string(here) + " here; calibrate on dumps of this model";
}

}  // namespace

CalibrationTexts one_text(const Stream& stream, Index prompt) {
  return {stream.shape.d, stream.shape.heads_per_kv,
          [&stream, prompt](const auto& visit) { visit(stream, prompt); }};
}

KeyMarks key_marks(const ConstMatrix& keys, Index tokens) {
  KeyMarks marks;
  std::uint64_t hash = 0;
  std::string bytes;
  const std::size_t row_bytes = keys.cols * sizeof(double);
  for (Index token = 0; token < tokens; ++token) {
    bytes.assign(reinterpret_cast<const char*>(&hash), sizeof hash);
    bytes.append(reinterpret_cast<const char*>(keys.row(token)), row_bytes);
    hash = hash64(bytes);
    if (std::has_single_bit(static_cast<std::uint64_t>(token + 1))) {
      marks.push_back(hash);
    }
  }
  return marks;
}

const CalibratedLayer* Calibration::find(int layer) const {
  const auto place = std::ranges::lower_bound(layers, layer, {}, &CalibratedLayer::index);
  return place != layers.end() && place->index == layer ? &*place : nullptr;
}

bool Calibration::has_text(const Stream& stream) const {
  const CalibratedLayer* layer = find(stream.id.layer);
  const std::size_t head = stream.id.kv_head;
  if (layer == nullptr || head >= layer->marks.size()) return false;
  const KeyMarks own = key_marks(stream.keys, stream.shape.tokens);
  const auto is_own = [&](const KeyMarks& marks) {
    const std::size_t common = std::min(marks.size(), own.size());
    return common > 0 && marks[common - 1] == own[common - 1];
  };
  return std::ranges::any_of(layer->marks[head], is_own);
}

std::optional<std::string> misfit(const Calibration& calibration, const std::string& model,
                                  int layer, int kv_heads, const StreamShape& shape) {
  if (!model.empty() && !calibration.model.empty() && model != calibration.model) {
    return "was calibrated on model " + calibration.model + ", and the dump is of " + model +
           "; calibrate on dumps of this model";
  }
  // Arrays have no model, and their number of layers may be unknown; so may that of a calibration
  // which a journal names.
  const bool are_known = !model.empty() && calibration.n_layers > 0;
  if (are_known && calibration.n_layers != shape.n_layers) {
    return of_other("layers of the model (n_layers)", calibration.n_layers, shape.n_layers);
  }
  const CalibratedLayer* found = calibration.find(layer);
  if (found == nullptr) return std::nullopt;
  const bool is_part = model.empty() && kv_heads <= found->kv_heads;
  if (!is_part && found->kv_heads != kv_heads)
    return of_other("KV heads", found->kv_heads, kv_heads);
  if (found->heads_per_kv != shape.heads_per_kv) {
    return of_other("query heads of a KV head", found->heads_per_kv, shape.heads_per_kv);
  }
  if (found->d != shape.d) return of_other("d", found->d, shape.d);
  if (!same_rotation(found->rope.get(), shape.rope.get())) {
    return "was calibrated with another rotation (rope of the dump); calibrate on dumps of this "
           "model";
  }
  return std::nullopt;
}

}  // namespace kvbench
