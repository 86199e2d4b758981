#include "dump/repeat.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "hdf5/stored_elements.hpp"
#include "hdf5/structure_errors.hpp"

namespace kvbench {
namespace {

constexpr std::uint64_t kMaxParts = 65536;  // read whole
constexpr std::int64_t kMaxRows = std::int64_t{1} << 40;

}  // namespace

std::shared_ptr<const RepeatPass> check_repeat(ErrorList& errors, hid_t sequence,
                                               const std::string& location, Index tokens) {
  if (!hdf5::has_link(sequence, "repeat")) return nullptr;
  const std::string place = join(location, "repeat");
  hdf5::Handle dataset = small_dataset_of(errors, sequence, place, "repeat");
  if (!dataset) return nullptr;
  const std::size_t before = errors.count();
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const auto dims = hdf5::extent(space.get());
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  if (H5Tget_class(type.get()) != H5T_INTEGER || dims.size() != 2 || dims[1] != 3 || dims[0] == 0 ||
      dims[0] > kMaxParts) {
    add(errors, place, "must be int32 [c, 3], c at most {}: first token, end and rows of each part",
        kMaxParts);
    return nullptr;
  }
  const std::vector<std::int64_t> numbers = all_integers(std::move(dataset));
  RepeatPass pass;
  for (std::size_t i = 0; i < numbers.size(); i += 3) {
    const RepeatPass::Part part{numbers[i], numbers[i + 1], numbers[i + 2]};
    const Index least = pass.parts.empty() ? 0 : pass.parts.back().end;
    const bool follows = pass.parts.empty() ? part.first >= 0 : part.first == least;
    if (!follows || part.end <= part.first || (tokens > 0 && part.end > tokens)) {
      add(errors, place,
          "part {} is [{}, {}); parts must lie in the {} tokens, each where the one before it ends",
          i / 3, part.first, part.end, tokens);
      return nullptr;
    }
    if (part.rows < 1 || part.rows > kMaxRows) {
      add(errors, place, "part {} has {} rows; it must have one at least", i / 3, part.rows);
    }
    pass.parts.push_back(part);
  }
  if (errors.count() > before) return nullptr;
  return std::make_shared<const RepeatPass>(std::move(pass));
}

std::optional<RepeatTensors> check_repeat_tensors(ErrorList& errors, hid_t layer,
                                                  const std::string& location,
                                                  const std::optional<TensorShape>& q,
                                                  const std::optional<TensorShape>& k) {
  const bool has_q = hdf5::has_link(layer, "q_repeat");
  const bool has_k = hdf5::has_link(layer, "k_repeat");
  if (!has_q && !has_k) return std::nullopt;
  if (has_q != has_k) {
    add(errors, location, "has {} without {}; write both, or neither",
        has_q ? "q_repeat" : "k_repeat", has_q ? "k_repeat" : "q_repeat");
    return std::nullopt;
  }
  const auto shape = [&](const char* name, const char* layout) {
    return tensor_shape(errors, layer, join(location, name), name, layout);
  };
  const auto of_q = shape("q_repeat", "[Hq, Nr, d]");
  const auto of_k = shape("k_repeat", "[Hkv, Nr, d]");
  if (!of_q || !of_k || !q || !k) return std::nullopt;
  const std::size_t before = errors.count();
  const auto agree = [&](const char* name, const TensorShape& repeated, const char* of,
                         const TensorShape& own) {
    if (repeated.heads == own.heads && repeated.columns == own.columns) return;
    add(errors, location, "{} {} and {} {} disagree in heads or d", name, repeated.text(), of,
        own.text());
  };
  agree("q_repeat", *of_q, "q", *q);
  agree("k_repeat", *of_k, "k", *k);
  if (of_q->rows != of_k->rows) {
    add(errors, location, "q_repeat {} and k_repeat {} disagree in rows", of_q->text(),
        of_k->text());
  }
  if (errors.count() > before) return std::nullopt;
  return RepeatTensors{*of_q, *of_k};
}

void join_repeat(ErrorList& errors, const std::string& location, SequenceInfo& sequence) {
  for (LayerInfo& layer : sequence.layers) {
    if (layer.repeat_rows == 0) continue;
    const std::string place = join(join(location, "layers"), std::to_string(layer.index));
    if (sequence.repeat == nullptr) {
      add(errors, place, "has q_repeat, and {} is missing or wrong; write the parts there",
          join(location, "repeat"));
    } else if (sequence.repeat->rows() != layer.repeat_rows) {
      add(errors, place, "q_repeat has {} rows and the parts of {} have {}", layer.repeat_rows,
          join(location, "repeat"), sequence.repeat->rows());
    } else {
      layer.repeat = sequence.repeat;
    }
  }
}

}  // namespace kvbench
