#include "dump/fingerprint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "dump/layer_output.hpp"
#include "dump/layer_survey.hpp"
#include "dump/structure.hpp"
#include "dump/tensor.hpp"
#include "hdf5/stored_elements.hpp"
#include "system/error.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

constexpr Index kBlockBytes = Index{1} << 16;
constexpr std::uint64_t kTensorShare = 64;  // a tensor's share of the limit is 1 / 64
constexpr hsize_t kIdsAtOnce = hsize_t{1} << 17;

// Text in which no name or value can pass for another's.
std::string quoted(const std::string& text) { return fmt::format("{}:{}", text.size(), text); }

// A truth value has the text of its number where the format reads one.
std::string attribute_text(hid_t object, const std::string& name) {
  constexpr std::array<std::string_view, 4> kNumbers = {"causal", "chunk", "logit_softcap",
                                                        "sliding_window"};
  const bool read = std::find(kNumbers.begin(), kNumbers.end(), name) != kNumbers.end();
  if (!read || !hdf5::is_truth_value(object, name)) return hdf5::attribute_text(object, name);
  return fmt::format("{}", hdf5::read_integer(object, name).value_or(0));
}

enum class Survey { kNone, kKeys, kValues };

struct TensorPlace {
  std::string path;
  Index row_token;  // token of row 0
  const char* row_name;
  Survey survey;
  std::string sequence;  // sequence that is surveyed
  int layer;
  std::uint64_t bytes;
};

// Digest of what was read of one head of a tensor.
struct HeadDigest {
  Hash128 hash;
  Index first_row = -1;  // the first one that is not zero; -1: all are
  Index last_row = -1;   // the last one that is not zero

  // `bytes`: whole rows of little-endian floats of `element` bytes each; -0.0 is zero.
  void add(Index row, const std::vector<std::byte>& bytes, std::size_t row_bytes,
           std::size_t element) {
    hash.add(bytes.data(), bytes.size());
    const auto is_used = [&](const std::byte& byte) {
      const bool has_sign = (&byte - bytes.data() + 1) % static_cast<std::ptrdiff_t>(element) == 0;
      return (has_sign ? byte & std::byte{0x7f} : byte) != std::byte{0};
    };
    const auto row_of = [&](auto place) {
      return row + (place - bytes.begin()) / static_cast<std::ptrdiff_t>(row_bytes);
    };
    const auto first = std::ranges::find_if(bytes, is_used);
    if (first == bytes.end()) return;
    if (first_row < 0) first_row = row_of(first);
    const auto last = std::find_if(bytes.rbegin(), bytes.rend(), is_used);
    last_row = std::max(last_row, row_of(last.base() - 1));
  }
};

class Content {
 public:
  // `step` is called before each object that is read, and between parts of the larger ones.
  // `known`: the hashes of tensors that need not be read; null: all are read.
  Content(hid_t file, const DumpInfo& info, const Step& step, const TensorHashes* known = nullptr)
      : file_(file), info_(info), step_(step), known_(known) {}

  // Everything but the elements of tensors.
  void add_descriptions() {
    add_attributes("/");
    add_rope("/");
    for (const SequenceInfo& sequence : info_.sequences) {
      const std::string path = "/sequences/" + sequence.name;
      add_attributes(path);
      add_token_ids(path);
      if (sequence.evidence) add_evidence(path, *sequence.evidence);
      if (sequence.repeat) add_repeat(path, *sequence.repeat);
      for (const LayerInfo& layer : sequence.layers) add_layer(sequence.name, layer);
    }
  }

  void add_attributes(const std::string& path) {
    step_();
    const hdf5::Handle object = hdf5::open_object(file_, path);
    for (const std::string& name : hdf5::attribute_names(object.get())) {
      if (name == "created") continue;
      text_ += fmt::format("{} @{}={}\n", quoted(path), quoted(name),
                           quoted(attribute_text(object.get(), name)));
    }
  }

  void add_rope(const std::string& parent) {
    const std::string path = (parent == "/" ? "" : parent) + "/rope";
    if (!hdf5::has_link(file_, path)) return;
    add_attributes(path);
    const auto values = all_doubles(hdf5::open_dataset(file_, path + "/inv_freq"));
    text_ += fmt::format("{} {}\n", quoted(path), fmt::join(values, " "));
  }

  void add_token_ids(const std::string& sequence) {
    const std::string path = sequence + "/token_ids";
    if (!hdf5::has_link(file_, path)) return;
    const StoredElements elements(hdf5::open_dataset(file_, path));
    const hsize_t count = elements.all().elements();
    Hash128 hash;
    std::vector<std::int64_t> ids;
    for (hsize_t first = 0; first < count; first += ids.size()) {
      step_();
      ids.resize(std::min<hsize_t>(count - first, kIdsAtOnce));
      elements.read_as(H5T_NATIVE_INT64, {{0, 0, first}, {1, 1, ids.size()}}, ids.data());
      hash.add(ids.data(), ids.size() * sizeof(std::int64_t));
    }
    text_ += fmt::format("{} {} {}\n", quoted(path), count, hash.hex());
  }

  void add_numbers(const std::string& path, const std::vector<double>& numbers) {
    if (numbers.empty()) return;
    Hash128 hash;
    hash.add(numbers.data(), numbers.size() * sizeof(double));
    text_ += fmt::format("{} {} {}\n", quoted(path), numbers.size(), hash.hex());
  }

  void add_layer(const std::string& sequence, const LayerInfo& layer) {
    const std::string path = layer_path(sequence, layer.index);
    add_attributes(path);
    add_rope(path);
    if (!layer.kv_layer) {
      add_tensor(path + "/k", 0);
      survey(sequence, layer.index, Survey::kKeys);
    }
    if (layer.out_rows > 0) add_tensor(path + "/out", layer.tokens - layer.out_rows);
    add_tensor(path + "/q", layer.tokens - layer.query_rows);
    if (!layer.value_in_key && !layer.kv_layer) {
      add_tensor(path + "/v", 0);
      survey(sequence, layer.index, Survey::kValues);
    }
    if (layer.wo_v_l1) add_tensor(path + "/wo_v_l1", 0);
    if (layer.hidden > 0) add_tensor(path + "/wo", 0, "row");
    if (layer.repeat) {
      add_tensor(path + "/q_repeat", 0, "row");
      add_tensor(path + "/k_repeat", 0, "row");
    }
    if (layer.residual_rows > 0) add_residual_norm(path + "/residual_norm");
    add_numbers(path + "/sinks", layer.sinks);
    add_numbers(path + "/alibi_slopes", layer.alibi_slopes);
    add_numbers(path + "/key_bias", layer.key_bias);
  }

  void add_residual_norm(const std::string& path) {
    const auto norms = read_residual_norm(file_, path, info_.path + ": " + path);
    text_ += fmt::format("{} {}\n", quoted(path), fmt::join(norms, " "));
  }

  // Its attribute counts with the others of the dataset.
  void add_evidence(const std::string& sequence, const Evidence& evidence) {
    const std::string path = sequence + "/evidence";
    add_attributes(path);
    text_ += quoted(path);
    for (const auto& [first, last] : evidence.spans) text_ += fmt::format(" {}-{}", first, last);
    text_ += "\n";
  }

  void add_repeat(const std::string& sequence, const RepeatPass& pass) {
    const std::string path = sequence + "/repeat";
    add_attributes(path);
    text_ += quoted(path);
    for (const auto& [first, end, rows] : pass.parts) {
      text_ += fmt::format(" {}-{}:{}", first, end, rows);
    }
    text_ += "\n";
  }

  ContentReading read(std::uint64_t hashed_whole) const {
    ContentReading reading;
    std::vector<LayerSurvey> layers;
    Hash128 hash;
    hash.add(text_);
    reading.hashed_whole = hashed_whole;
    const std::uint64_t whole = info_.hashed_by_tensor ? hashed_whole / kTensorShare : hashed_whole;
    for (const TensorPlace& place : tensors_) {
      if (known_ != nullptr) {
        add_known(hash, place, reading);
        continue;
      }
      const Share share{.bytes = info_.hashed_by_tensor ? place.bytes : bytes_, .whole = whole};
      reading.sampled = reading.sampled || share.is_sampled();
      Hash128 own;
      const Tensor tensor = open(place);
      std::vector<HeadDigest> digests(tensor.heads());
      for (Index head = 0; head < tensor.heads(); ++head) {
        add_head(info_.hashed_by_tensor ? own : hash, tensor, head, share, digests[head]);
      }
      if (info_.hashed_by_tensor) {
        hash.add(own.hex());
        reading.hashes[place.path] = own.hex();
      }
      if (place.survey == Survey::kKeys) {
        layers.push_back({place.sequence, place.layer, tensor.rows(), {}, -1, {}});
      }
      if (place.survey != Survey::kNone) add_survey(layers, place, digests);
    }
    reading.fingerprint = hash.hex();
    if (reading.sampled) look_again(layers);
    reading.notes = survey_notes(info_.path, layers);
    return reading;
  }

 private:
  // The bytes that a hash is of, and from how many on it is of samples.
  struct Share {
    std::uint64_t bytes;
    std::uint64_t whole;

    bool is_sampled() const { return bytes >= whole; }
    double fraction() const {
      const std::uint64_t taken = whole / 4;
      return taken / static_cast<double>(bytes);
    }
  };

  void add_known(Hash128& hash, const TensorPlace& place, ContentReading& reading) const {
    const auto found = known_->find(place.path);
    if (found == known_->end()) {
      throw InputError(info_.path + ": " + place.path + ": its hash is missing; give it");
    }
    hash.add(found->second);
    reading.hashes.insert(*found);
  }

  void add_tensor(const std::string& path, Index row_token, const char* row_name = "token") {
    const Tensor tensor(file_, path, info_.path + ": " + path, row_token, row_name);
    text_ += fmt::format("{} {} [{}, {}, {}]\n", quoted(path), element_name(tensor.type()),
                         tensor.heads(), tensor.rows(), tensor.columns());
    const std::uint64_t bytes = tensor.heads() * static_cast<std::uint64_t>(tensor.rows()) *
                                tensor.columns() * element_bytes(tensor.type());
    bytes_ += bytes;
    tensors_.push_back({path, row_token, row_name, Survey::kNone, {}, 0, bytes});
  }

  // The keys of a layer come before its values.
  void survey(const std::string& sequence, int layer, Survey what) {
    TensorPlace& place = tensors_.back();
    place.survey = what;
    place.sequence = sequence;
    place.layer = layer;
  }

  Tensor open(const TensorPlace& place) const {
    return {file_, place.path, info_.path + ": " + place.path, place.row_token, place.row_name};
  }

  static void add_survey(std::vector<LayerSurvey>& layers, const TensorPlace& place,
                         const std::vector<HeadDigest>& digests) {
    const auto of = std::find_if(layers.begin(), layers.end(), [&](const LayerSurvey& layer) {
      return layer.layer == place.layer && layer.sequence == place.sequence;
    });
    of->heads.resize(digests.size());
    for (std::size_t head = 0; head < digests.size(); ++head) {
      of->heads[head] += digests[head].hash.hex();
      if (place.survey != Survey::kKeys) continue;
      of->last_key = std::max(of->last_key, digests[head].last_row);
      const Index first = digests[head].first_row;
      of->first_keys.push_back(first < 0 ? of->tokens : first);
    }
  }

  static void forget(LayerSurvey& layer) {
    layer.heads.clear();
    layer.last_key = -1;
    layer.first_keys.clear();
  }

  // All elements of what samples make suspicious. A tensor that cannot be read whole fails the
  // cells that read it, and is not surveyed.
  void look_again(std::vector<LayerSurvey>& layers) const {
    for (LayerSurvey& layer : layers) {
      if (!layer.is_suspicious()) continue;
      forget(layer);
      try {
        look_again_at(layer, layers);
      } catch (const InputError&) {
        forget(layer);  // nothing is noted
      }
    }
  }

  void look_again_at(const LayerSurvey& layer, std::vector<LayerSurvey>& layers) const {
    for (const TensorPlace& place : tensors_) {
      if (place.survey == Survey::kNone || place.layer != layer.layer ||
          place.sequence != layer.sequence) {
        continue;
      }
      const Tensor tensor = open(place);
      std::vector<HeadDigest> digests(tensor.heads());
      Hash128 unused;
      for (Index head = 0; head < tensor.heads(); ++head) {
        add_head(unused, tensor, head, {.bytes = 0, .whole = 1}, digests[head]);
      }
      add_survey(layers, place, digests);
    }
  }

  // All of this head, or its share of the samples.
  void add_head(Hash128& hash, const Tensor& tensor, Index head, const Share& share,
                HeadDigest& digest) const {
    const std::size_t element = element_bytes(tensor.type());
    const std::size_t row_bytes = tensor.columns() * element;
    const auto add = [&](Index row, Index, const std::vector<std::byte>& bytes) {
      step_();
      hash.add(bytes.data(), bytes.size());
      digest.add(row, bytes, row_bytes, element);
    };
    if (!share.is_sampled()) {
      tensor.for_each_slab(head, 0, tensor.rows(), add);
      return;
    }
    const Index block = std::max<Index>(1, kBlockBytes / static_cast<Index>(row_bytes));
    const Index blocks = (tensor.rows() + block - 1) / block;
    const Index taken =
        std::clamp(static_cast<Index>(share.fraction() * static_cast<double>(blocks)),
                   std::min<Index>(2, blocks), blocks);
    for (Index i = 0; i < taken; ++i) {
      // The first and the last block are always among them.
      const Index chosen = taken == 1 ? 0 : i * (blocks - 1) / (taken - 1);
      tensor.for_each_slab(head, chosen * block, std::min(tensor.rows(), (chosen + 1) * block),
                           add);
    }
  }

  hid_t file_;
  const DumpInfo& info_;
  const Step& step_;
  const TensorHashes* known_;
  std::string text_;
  std::uint64_t bytes_ = 0;
  std::vector<TensorPlace> tensors_;
};

// Bytes that are held to decode the chunks of a layer, at most.
std::uint64_t most_chunk_bytes(const DumpInfo& info) {
  std::uint64_t most = 0;
  for (const SequenceInfo& sequence : info.sequences) {
    for (const LayerInfo& layer : sequence.layers) {
      most = std::max({most, layer.chunk_bytes, layer.wo_chunk_bytes});
    }
  }
  return most;
}

InputError unreadable(const DumpInfo& info, const hdf5::Error& error) {
  return InputError(fmt::format("{}: cannot be read ({}); the file is truncated or damaged",
                                info.path, error.what()));
}

}  // namespace

void read_descriptions(hid_t file, const DumpInfo& info, const Step& step) {
  try {
    Content(file, info, step).add_descriptions();
  } catch (const hdf5::Error& error) {
    throw unreadable(info, error);
  }
}

ContentReading read_content(hid_t file, const DumpInfo& info, std::uint64_t hashed_whole,
                            const Step& step, const TensorHashes* known) {
  try {
    Content content(file, info, step, known);
    content.add_descriptions();
    return content.read(hashed_whole);
  } catch (const hdf5::Error& error) {
    throw unreadable(info, error);
  }
}

ContentReading read_content_in_child(hid_t file, const DumpInfo& info, std::uint64_t hashed_whole) {
  // The answer is fingerprint, whether it is of samples, and the notes.
  const auto read = [&](const Step& step) {
    ContentReading content = read_content(file, info, hashed_whole, step);
    content.notes.insert(content.notes.begin(),
                         {content.fingerprint, content.sampled ? "sampled" : "whole"});
    return content.notes;
  };
  const auto answer =
      read_in_child(info.path, read, {.what = "numbers", .further_memory = most_chunk_bytes(info)});
  if (answer.empty()) return read_content(file, info, hashed_whole, [] {});
  return {.fingerprint = answer[0],
          .hashed_whole = hashed_whole,
          .sampled = answer[1] == "sampled",
          .notes = {answer.begin() + 2, answer.end()},
          .hashes = {}};
}

}  // namespace kvbench
