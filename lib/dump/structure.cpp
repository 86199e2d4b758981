#include "dump/structure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "dump/evidence.hpp"
#include "dump/kv_layer.hpp"
#include "dump/layer_members.hpp"
#include "dump/layer_output.hpp"
#include "dump/repeat.hpp"
#include "dump/tensor_shape.hpp"
#include "hdf5/attributes.hpp"
#include "hdf5/stored_elements.hpp"
#include "hdf5/structure_errors.hpp"
#include "system/error.hpp"
#include "system/memory_limit.hpp"

namespace kvbench {
namespace {

// The tensors of a layer that its streams are read from.
struct StreamTensors {
  const TensorShape& q;
  const TensorShape& k;
  const TensorShape& v;
  const std::optional<TensorShape>& wo_v_l1;
  const std::optional<RepeatTensors>& repeat;

  std::uint64_t chunk_bytes() const {
    return q.chunk_bytes + k.chunk_bytes + v.chunk_bytes + (wo_v_l1 ? wo_v_l1->chunk_bytes : 0) +
           (repeat ? repeat->q.chunk_bytes + repeat->k.chunk_bytes : 0);
  }
};

std::string chunks_too_large(std::uint64_t bytes, const StructureReading& reading, Index columns) {
  constexpr Index kElements = Index{1} << 17;  // elements of a chunk as large as needed
  const Index width = std::clamp(columns, Index{1}, kElements);
  return fmt::format(
      "decoding its chunks takes {:.3g} MiB of memory, more than the limit of {:.3g} MiB; store it "
      "in chunks of one head, e.g. h5repack -l CHUNK=1x{}x{} OLD NEW, or raise the limit",
      bytes / 0x1p20, reading.chunk_memory / 0x1p20, std::min(Index{1024}, kElements / width),
      width);
}

// Checks the memory that one stream takes: its keys, values and queries, and what else is read with
// them, as doubles, and what is held to read them.
void check_memory(ErrorList& errors, const std::string& location, const StreamTensors& tensors,
                  const StructureReading& reading) {
  const auto& [q, k, v, wo_v_l1, repeat] = tensors;
  const double group = q.heads / static_cast<double>(k.heads);
  const double doubles = k.rows * (k.columns + static_cast<double>(v.columns)) +
                         group * q.rows * q.columns + (wo_v_l1 ? group * k.rows : 0.0) +
                         (repeat ? (group + 1.0) * repeat->q.rows * repeat->q.columns : 0.0);
  const std::uint64_t chunks = tensors.chunk_bytes();
  if (chunks > reading.chunk_memory) {
    add(errors, location, "{}", chunks_too_large(chunks, reading, k.columns));
  }
  const double bytes = 8.0 * doubles + chunks;
  const double most = reading.memory;
  if (bytes > most) {
    add(errors, location,
        "one KV head with its queries needs {:.3g} GiB of memory and there are {:.3g} GiB; "
        "correct the shapes, or dump fewer tokens or query rows",
        bytes / 0x1p30, most / 0x1p30);
  }
}

// The same of a tensor that is read by itself, one head at a time; of its hash, which every command
// takes, a row at least.
void check_memory_of(ErrorList& errors, const std::string& place, const TensorShape& tensor,
                     const StructureReading& reading) {
  const double chunks = tensor.chunk_bytes;
  const auto row = tensor.columns * static_cast<double>(element_bytes(tensor.stored.type));
  const double columns = tensor.columns;
  const double head = 8.0 * tensor.rows * columns + chunks;
  const double limit = reading.chunk_memory;
  if (row > limit) {
    add(errors, place,
        "reading a row of it takes {:.3g} MiB of memory, more than the limit of {:.3g} MiB; "
        "correct its shape, or raise the limit",
        row / 0x1p20, limit / 0x1p20);
  } else if (chunks > limit) {
    add(errors, place, "{}", chunks_too_large(tensor.chunk_bytes, reading, tensor.columns));
  } else if (const double most = reading.memory; head > most) {
    add(errors, place,
        "one head of it needs {:.3g} GiB of memory and there are {:.3g} GiB; correct its shape, or "
        "leave it out",
        head / 0x1p30, most / 0x1p30);
  }
}

void check_layer_tensors(ErrorList& errors, hid_t layer, const std::string& location,
                         const StructureReading& reading, LayerInfo& info) {
  const auto shape = [&](const std::string& name, const char* layout) {
    return tensor_shape(errors, layer, join(location, name), name, layout, !reading.is_outline);
  };
  const auto q = shape("q", "[Hq, Nq, d]");
  const auto k = shape("k", "[Hkv, n, d]");
  const bool has_v = hdf5::has_link(layer, "v");
  std::optional<TensorShape> v;
  if (info.value_in_key && has_v) {
    add(errors, join(location, "v"),
        "cannot be combined with the attribute value_in_key (values are columns of k); remove "
        "one of them");
  } else if (info.value_in_key && k) {
    v = k;
    v->columns = info.dv;
    v->chunk_bytes = 0;
    if (info.dv > k->columns) {
      add(errors, location, "attribute value_in_key is {}, more than the {} columns of k", info.dv,
          k->columns);
    }
  } else if (!info.value_in_key) {
    v = shape("v", "[Hkv, n, dv]");
  }
  std::optional<TensorShape> out;
  const bool has_out = hdf5::has_link(layer, "out");
  if (has_out) out = shape("out", "[Hq, No, dv]");
  std::optional<TensorShape> wo_v_l1;
  const bool has_wo_v_l1 = hdf5::has_link(layer, "wo_v_l1");
  if (has_wo_v_l1) wo_v_l1 = shape("wo_v_l1", "[Hq, n, 1]");
  if (k && v && (k->heads != v->heads || k->rows != v->rows)) {
    add(errors, location, "k {} and v {} disagree; both have [Hkv, n] first", k->text(), v->text());
  }
  if (q && k) {
    if (q->columns != k->columns) {
      add(errors, location, "q {} and k {} disagree in d, the last dimension", q->text(),
          k->text());
    }
    if (q->rows > k->rows) {
      add(errors, location, "q {} has more rows than k {} has tokens", q->text(), k->text());
    }
    if (q->heads % k->heads != 0) {
      add(errors, location, "{} query heads are not a multiple of {} KV heads", q->heads, k->heads);
    }
  }
  if (out && q && out->heads != q->heads) {
    add(errors, location, "out {} and q {} disagree in heads", out->text(), q->text());
  }
  if (out && v && out->columns != v->columns) {
    add(errors, location, "out {} and v {} disagree in dv, the last dimension", out->text(),
        v->text());
  }
  if (out && k && out->rows > k->rows) {
    add(errors, location, "out {} has more rows than k {} has tokens", out->text(), k->text());
  }
  if (wo_v_l1 && q && k &&
      (wo_v_l1->heads != q->heads || wo_v_l1->rows != k->rows || wo_v_l1->columns != 1)) {
    add(errors, location, "wo_v_l1 {} must be [{}, {}, 1]: a number per query head and token",
        wo_v_l1->text(), q->heads, k->rows);
  }
  const auto repeat = check_repeat_tensors(errors, layer, location, q, k);
  const LayerTensors of_layer{q, k, v};
  const auto wo = check_wo(errors, layer, location, of_layer);
  info.hidden = wo ? wo->columns : 0;
  info.wo_chunk_bytes = wo ? wo->chunk_bytes : 0;
  info.residual_rows = check_residual_norm(errors, layer, location, of_layer);
  if (q) check_members(errors, layer, location, q->heads, info);
  if (k) check_key_bias(errors, layer, location, k->heads, k->columns, info);
  if (!q || !k || !v) return;
  const StreamTensors tensors{*q, *k, *v, wo_v_l1, repeat};
  check_memory(errors, location, tensors, reading);
  if (wo) check_memory_of(errors, join(location, "wo"), *wo, reading);
  if (out) check_memory_of(errors, join(location, "out"), *out, reading);
  info.query_heads = q->heads;
  info.kv_heads = k->heads;
  info.tokens = k->rows;
  info.query_rows = q->rows;
  info.d = k->columns;
  info.dv = v->columns;
  info.dtype = element_name(k->stored.type);
  info.coarsest = coarser(q->stored.type, coarser(k->stored.type, v->stored.type));
  info.out_rows = out ? out->rows : 0;
  if (out) info.out_type = out->stored.type;
  info.wo_v_l1 = wo_v_l1.has_value();
  info.repeat_rows = repeat ? repeat->q.rows : 0;
  info.chunk_bytes = tensors.chunk_bytes();
}

// The tensors of a layer that reads another one's keys and values; what it shares is joined later.
void check_reader_tensors(ErrorList& errors, hid_t layer, const std::string& location,
                          const StructureReading& reading, LayerInfo& info) {
  for (const char* name : {"k", "v", "q_repeat", "k_repeat", "key_bias"}) {
    if (!hdf5::has_link(layer, name)) continue;
    add(errors, join(location, name),
        "cannot be combined with the attribute kv_layer (layer {} has the keys and values); remove "
        "one of them",
        *info.kv_layer);
  }
  if (info.value_in_key) {
    add(errors, location, "has kv_layer and value_in_key; write value_in_key to layer {} alone",
        *info.kv_layer);
  }
  const auto shape = [&](const char* name, const char* layout) {
    return tensor_shape(errors, layer, join(location, name), name, layout, !reading.is_outline);
  };
  const auto q = shape("q", "[Hq, Nq, d]");
  std::optional<TensorShape> out, wo_v_l1;
  if (hdf5::has_link(layer, "out")) out = shape("out", "[Hq, No, dv]");
  if (hdf5::has_link(layer, "wo_v_l1")) wo_v_l1 = shape("wo_v_l1", "[Hq, n, 1]");
  const LayerTensors of_layer{q, std::nullopt, out};
  const auto wo = check_wo(errors, layer, location, of_layer);
  info.residual_rows = check_residual_norm(errors, layer, location, of_layer);
  if (!q) return;
  check_members(errors, layer, location, q->heads, info);
  for (const auto& [name, tensor] : {std::pair{"q", q}, {"out", out}, {"wo", wo}}) {
    if (!tensor) continue;
    check_memory_of(errors, join(location, name), *tensor, reading);
    if (tensor->heads == q->heads) continue;
    add(errors, location, "{} {} and q {} disagree in heads", name, tensor->text(), q->text());
  }
  if (wo_v_l1 && (wo_v_l1->heads != q->heads || wo_v_l1->columns != 1)) {
    add(errors, location, "wo_v_l1 {} must be [{}, n, 1]", wo_v_l1->text(), q->heads);
  }
  info.query_heads = q->heads;
  info.query_rows = q->rows;
  info.d = q->columns;
  info.tokens = wo_v_l1 ? wo_v_l1->rows : 0;
  info.dv = out ? out->columns : 0;
  info.coarsest = q->stored.type;
  info.out_rows = out ? out->rows : 0;
  if (out) info.out_type = out->stored.type;
  info.hidden = wo ? wo->columns : 0;
  info.wo_chunk_bytes = wo ? wo->chunk_bytes : 0;
  info.wo_v_l1 = wo_v_l1.has_value();
  info.chunk_bytes = q->chunk_bytes + (wo_v_l1 ? wo_v_l1->chunk_bytes : 0);
}

using SharedRope = std::shared_ptr<const Rope>;

// Dimensions that a rope turns.
Index turned_dimensions(const SharedRope& rope) { return rope ? (2 * rope->inv_freq.size()) : 0; }

// Reads the group `rope` of the root or of a layer, if there is one; null without or with an error.
SharedRope check_rope(ErrorList& errors, hid_t parent, const std::string& parent_location) {
  const std::string location = join(parent_location, "rope");
  if (!hdf5::has_link(parent, "rope")) return nullptr;
  if (!is_group(errors, parent, location, "rope")) return nullptr;
  const hdf5::Handle rope = hdf5::open_group(parent, "rope");
  Attributes attributes(errors, rope.get(), location);
  attributes.number("theta", true);
  attributes.number("attention_scaling", true);
  const auto layout = attributes.text("layout");
  if (layout && *layout != "half" && *layout != "interleaved") {
    add(errors, location, "attribute layout is '{}'; it must be 'half' or 'interleaved'", *layout);
  }
  const std::string inv_freq = join(location, "inv_freq");
  if (!hdf5::has_link(rope.get(), "inv_freq")) {
    add(errors, inv_freq, "dataset is missing; it has the d_rot/2 inverse frequencies");
    return nullptr;
  }
  hdf5::Handle dataset = small_dataset_of(errors, rope.get(), inv_freq, "inv_freq");
  if (!dataset) return nullptr;
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const auto dims = hdf5::extent(space.get());
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  if (H5Tget_class(type.get()) != H5T_FLOAT || dims.size() != 1 || dims[0] == 0 ||
      dims[0] > 65536) {
    add(errors, inv_freq, "must be float64 [d_rot/2]");
    return nullptr;
  }
  std::vector<double> values;
  try {
    values = all_doubles(std::move(dataset));
  } catch (const hdf5::Error& error) {
    add(errors, inv_freq, "cannot be read ({})", error.what());
    return nullptr;
  }
  if (!std::all_of(values.begin(), values.end(), [](double f) { return std::isfinite(f); })) {
    add(errors, inv_freq, "contains NaN or infinity");
  }
  return std::make_shared<const Rope>(Rope{std::move(values), layout && *layout == "interleaved"});
}

// Facts that the layers of a file have in common.
struct Model {
  int n_layers;
  SharedRope rope;  // RoPE of the root
  int format_version;
  const StructureReading& reading;
};

std::optional<LayerInfo> check_layer(ErrorList& errors, hid_t layers, const std::string& location,
                                     const std::string& name, const Model& model) {
  const std::string layer_location = join(location, name);
  model.reading.step();
  if (!is_group(errors, layers, layer_location, name)) return std::nullopt;
  const auto index = index_named(name);
  if (!index) {
    add(errors, layer_location, "a layer's group is named by its 0-based index in decimal");
  } else if (model.n_layers > 0 && *index >= model.n_layers) {
    add(errors, layer_location, "layer {} of a model with n_layers = {}", *index, model.n_layers);
  }
  const hdf5::Handle layer = hdf5::open_group(layers, name);
  LayerInfo info;
  info.index = index.value_or(0);
  Attributes attributes(errors, layer.get(), layer_location);
  info.scale = attributes.number("scale", true).value_or(1.0);
  info.window =
      attributes.integer("sliding_window", 0, std::numeric_limits<std::int64_t>::max()).value_or(0);
  info.softcap = attributes.number("logit_softcap", false).value_or(0.0);
  check_mask(errors, attributes, layer_location, info);
  if (attributes.has("kv_layer")) {
    info.kv_layer = static_cast<int>(
        attributes.integer("kv_layer", 0, std::numeric_limits<int>::max()).value_or(0));
  }
  const auto check_tensors = info.kv_layer ? check_reader_tensors : check_layer_tensors;
  check_tensors(errors, layer.get(), layer_location, model.reading, info);
  require_version(errors, layer.get(), layer_location, model.format_version);
  const bool own_rope = hdf5::has_link(layer.get(), "rope");
  info.rope = own_rope ? check_rope(errors, layer.get(), layer_location) : model.rope;
  const Index rotated = turned_dimensions(info.rope);
  if (info.d > 0 && rotated > info.d) {
    add(errors, own_rope ? join(layer_location, "rope") : std::string("/rope"),
        "inv_freq rotates {} dimensions and {} has d = {}", rotated, layer_location, info.d);
  }
  return info;
}

SequenceInfo check_sequence(ErrorList& errors, hid_t sequences, const std::string& name,
                            const Model& model) {
  const std::string location = "/sequences/" + name;
  model.reading.step();
  SequenceInfo info;
  info.name = name;
  if (!is_group(errors, sequences, location, name)) return info;
  const hdf5::Handle sequence = hdf5::open_group(sequences, name);
  Attributes attributes(errors, sequence.get(), location);
  if (attributes.has("prompt_tokens")) {
    info.prompt_tokens =
        attributes.integer("prompt_tokens", 0, std::numeric_limits<std::int64_t>::max());
  }
  if (attributes.has("description")) {
    info.description = attributes.text("description").value_or("");
  }
  if (!is_group(errors, sequence.get(), join(location, "layers"), "layers")) return info;
  const hdf5::Handle layers = hdf5::open_group(sequence.get(), "layers");
  const std::string layers_location = join(location, "layers");
  for (const std::string& layer : hdf5::children(layers.get())) {
    auto found = check_layer(errors, layers.get(), layers_location, layer, model);
    if (found) info.layers.push_back(std::move(*found));
  }
  std::sort(info.layers.begin(), info.layers.end(),
            [](const LayerInfo& a, const LayerInfo& b) { return a.index < b.index; });
  if (info.layers.empty()) {
    add(errors, layers_location, "contains no layer");
    return info;
  }
  join_kv_layers(errors, location, info);
  const Index tokens = info.layers.front().tokens;
  for (const LayerInfo& layer : info.layers) {
    if (layer.tokens > 0 && tokens > 0 && layer.tokens != tokens) {
      add(errors, join(layers_location, std::to_string(layer.index)),
          "has {} tokens and layer {} has {}; the layers of a sequence share its tokens",
          layer.tokens, info.layers.front().index, tokens);
    }
  }
  for (const LayerInfo& layer : info.layers) {
    if (layer.causal == info.layers.front().causal) continue;
    add(errors, join(layers_location, std::to_string(layer.index)),
        "has causal = {} and layer {} the opposite; write the same in all layers of a sequence",
        layer.causal ? 1 : 0, info.layers.front().index);
  }
  check_token_ids(errors, sequence.get(), location, tokens);
  info.evidence = check_evidence(errors, sequence.get(), location, tokens);
  info.repeat = check_repeat(errors, sequence.get(), location, tokens);
  join_repeat(errors, location, info);
  return info;
}

void check_root(ErrorList& errors, hid_t root, DumpInfo& info) {
  Attributes attributes(errors, root, "/");
  info.format_version = check_format(errors, attributes, "kvbench-dump", 2).value_or(1);
  info.model = attributes.text("model").value_or("");
  info.producer = attributes.text("producer").value_or("");
  info.n_layers = static_cast<int>(
      attributes.integer("n_layers", 1, std::numeric_limits<int>::max()).value_or(0));
  if (hdf5::has_attribute(root, "fingerprint")) {
    const auto kind = attributes.text("fingerprint");
    info.hashed_by_tensor = kind == "by tensor";
    if (kind && !info.hashed_by_tensor) {
      add(errors, "/", "attribute fingerprint is \"{}\"; it must be \"by tensor\", or be left out",
          *kind);
    }
  }
  for (const std::string& name : hdf5::attribute_names(root)) {
    try {
      info.attributes.emplace_back(name, hdf5::attribute_text(root, name));
    } catch (const hdf5::Error& error) {
      add(errors, "/", "attribute {} cannot be read ({})", name, error.what());
    }
  }
}

DumpInfo checked(ErrorList& errors, hid_t file, const std::string& path,
                 const StructureReading& reading) {
  DumpInfo info;
  info.path = path;
  const hdf5::Handle root = hdf5::open_group(file, "/");
  check_root(errors, root.get(), info);
  const Model model{info.n_layers, check_rope(errors, root.get(), "/"), info.format_version,
                    reading};
  if (!is_group(errors, root.get(), "/sequences", "sequences")) return info;
  const hdf5::Handle sequences = hdf5::open_group(root.get(), "sequences");
  hdf5::limit_metadata(sequences.get());
  for (const std::string& name : hdf5::children(sequences.get())) {
    info.sequences.push_back(check_sequence(errors, sequences.get(), name, model));
  }
  if (info.sequences.empty()) add(errors, "/sequences", "contains no sequence");
  return info;
}

}  // namespace

DumpInfo read_structure(hid_t file, const std::string& path, const StructureReading& reading) {
  ErrorList errors(path);
  DumpInfo info;
  try {
    info = checked(errors, file, path, reading);
  } catch (const hdf5::Error& error) {
    add(errors, "/", "{}", unreadable_structure(error));
  }
  errors.throw_if_any();
  return info;
}

std::string layer_path(const std::string& sequence, int layer) {
  return fmt::format("/sequences/{}/layers/{}", sequence, layer);
}

}  // namespace kvbench
