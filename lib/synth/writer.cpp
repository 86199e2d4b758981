#include "synth/writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>

#include "hdf5/hdf5.hpp"
#include "system/error.hpp"
#include "system/file.hpp"

namespace kvbench {
namespace {

constexpr Index kDefaultChunkRows = 1024;

hdf5::Handle float16_type() {
  hdf5::Handle type(H5Tcopy(H5T_IEEE_F32LE));
  hdf5::check(H5Tset_fields(type.get(), 15, 10, 5, 0, 10));
  hdf5::check(H5Tset_size(type.get(), 2));
  hdf5::check(H5Tset_ebias(type.get(), 15));
  return type;
}

hdf5::Handle file_type(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return float16_type();
    case ElementType::kBfloat16:
      return hdf5::Handle(H5Tcopy(H5T_STD_U16LE));
    case ElementType::kFloat32:
      return hdf5::Handle(H5Tcopy(H5T_IEEE_F32LE));
    case ElementType::kFloat64:
      break;
  }
  return hdf5::Handle(H5Tcopy(H5T_IEEE_F64LE));
}

void write_rope_group(hid_t parent, const RopeData& rope) {
  const hdf5::Handle group = hdf5::create_group(parent, "rope");
  hdf5::write_attribute(group.get(), "theta", rope.theta);
  hdf5::write_attribute(group.get(), "layout", rope.layout);
  hdf5::write_attribute(group.get(), "attention_scaling", rope.attention_scaling);
  hdf5::write_dataset(group.get(), "inv_freq", {rope.inv_freq.size()}, rope.inv_freq.data());
}

struct Target {
  hdf5::Handle dataset;
  StorageOptions storage;
  std::array<Index, 3> dims{};
};

}  // namespace

struct DumpWriter::Impl {
  std::string path;
  std::string partial;
  StorageOptions storage;
  hdf5::Handle file;
  hdf5::Handle sequences;
  hdf5::Handle sequence;
  hdf5::Handle layers;
  hdf5::Handle layer;
  std::map<std::string, Target> targets;
  bool finished = false;

  // Runs `write`; what the library cannot write, the place cannot hold.
  template <class Write>
  void guarded(Write write) {
    try {
      write();
    } catch (const hdf5::Error& error) {
      throw IoError(fmt::format("{}: cannot be written ({}); check the folder and its free space",
                                path, error.what()));
    }
  }

  void add_tensor(const std::string& name, const StorageOptions& options, Index heads, Index rows,
                  Index columns) {
    Target target;
    target.storage = options;
    target.dims = {heads, rows, columns};
    std::array<hsize_t, 3> dims{};
    std::copy(target.dims.begin(), target.dims.end(), dims.begin());
    const hdf5::Handle properties = hdf5::dataset_properties();
    if (options.chunk_rows > 0 || options.gzip > 0) {
      const Index chunk_rows = options.chunk_rows > 0 ? options.chunk_rows : kDefaultChunkRows;
      const std::array<hsize_t, 3> chunk = {1, static_cast<hsize_t>(std::min(rows, chunk_rows)),
                                            static_cast<hsize_t>(columns)};
      hdf5::check(H5Pset_chunk(properties.get(), 3, chunk.data()));
    }
    if (options.gzip > 0) {
      hdf5::check(H5Pset_shuffle(properties.get()));
      hdf5::check(H5Pset_deflate(properties.get(), static_cast<unsigned>(options.gzip)));
    }
    const hdf5::Handle type = file_type(options.type);
    const hdf5::Handle space(H5Screate_simple(3, dims.data(), nullptr));
    target.dataset = hdf5::Handle(H5Dcreate2(layer.get(), name.c_str(), type.get(), space.get(),
                                             H5P_DEFAULT, properties.get(), H5P_DEFAULT));
    if (options.type == ElementType::kBfloat16) {
      hdf5::write_attribute(target.dataset.get(), "dtype", std::string("bfloat16"));
    }
    targets[name] = std::move(target);
  }

  void close() {
    targets.clear();
    layer = hdf5::Handle();
    layers = hdf5::Handle();
    sequence = hdf5::Handle();
    sequences = hdf5::Handle();
    file = hdf5::Handle();
  }
};

DumpWriter::DumpWriter(const std::string& path, const DumpHeader& header,
                       const StorageOptions& storage)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->partial = fmt::format("{}.partial-{}", path, getpid());
  impl_->storage = storage;
  if (!std::ofstream(impl_->partial, std::ios::binary)) {
    throw IoError(fmt::format("{}: cannot be written ({}); name a file in a folder that exists",
                              path, std::strerror(errno)));
  }
  try {
    impl_->guarded([&] {
      impl_->file = hdf5::create_file(impl_->partial);
      const hid_t file = impl_->file.get();
      hdf5::write_attribute(file, "format", std::string("kvbench-dump"));
      hdf5::write_attribute(file, "format_version", std::int64_t{header.format_version});
      hdf5::write_attribute(file, "model", header.model);
      hdf5::write_attribute(file, "producer", header.producer);
      hdf5::write_attribute(file, "n_layers", std::int64_t{header.n_layers});
      impl_->sequences = hdf5::create_group(file, "sequences");
    });
  } catch (...) {
    std::remove(impl_->partial.c_str());
    throw;
  }
}

DumpWriter::~DumpWriter() {
  if (impl_->finished) return;
  impl_->close();
  std::remove(impl_->partial.c_str());
}

void DumpWriter::write_rope(const RopeData& rope) {
  impl_->guarded([&] { write_rope_group(impl_->file.get(), rope); });
}

void DumpWriter::add_sequence(const std::string& name, std::optional<Index> prompt_tokens,
                              const std::string& description,
                              const std::vector<std::int32_t>& token_ids) {
  impl_->guarded([&] {
    impl_->sequence = hdf5::create_group(impl_->sequences.get(), name);
    const hdf5::Handle& sequence = impl_->sequence;
    if (prompt_tokens) hdf5::write_attribute(sequence.get(), "prompt_tokens", *prompt_tokens);
    if (!description.empty()) hdf5::write_attribute(sequence.get(), "description", description);
    if (!token_ids.empty()) {
      hdf5::write_dataset(sequence.get(), "token_ids", {token_ids.size()}, token_ids.data());
    }
    impl_->layers = hdf5::create_group(sequence.get(), "layers");
  });
}

void DumpWriter::add_layer(int index, const LayerLayout& layout) {
  impl_->guarded([&] {
    impl_->targets.clear();
    impl_->layer = hdf5::create_group(impl_->layers.get(), std::to_string(index));
    const hid_t layer = impl_->layer.get();
    hdf5::write_attribute(layer, "scale", layout.scale);
    hdf5::write_attribute(layer, "sliding_window", layout.window);
    hdf5::write_attribute(layer, "logit_softcap", layout.softcap);
    if (layout.chunk > 0) hdf5::write_attribute(layer, "chunk", layout.chunk);
    if (!layout.causal) hdf5::write_attribute(layer, "causal", std::int64_t{0});
    if (layout.value_in_key) hdf5::write_attribute(layer, "value_in_key", layout.dv);
    const auto numbers = [&](const char* name, const std::vector<double>& all) {
      if (!all.empty()) hdf5::write_dataset(layer, name, {all.size()}, all.data());
    };
    numbers("sinks", layout.sinks);
    numbers("alibi_slopes", layout.alibi_slopes);
    const StorageOptions& storage = impl_->storage;
    impl_->add_tensor("q", storage, layout.query_heads, layout.query_rows, layout.d);
    impl_->add_tensor("k", storage, layout.kv_heads, layout.tokens, layout.d);
    if (!layout.value_in_key) {
      impl_->add_tensor("v", storage, layout.kv_heads, layout.tokens, layout.dv);
    }
    StorageOptions out = storage;
    if (out.type != ElementType::kFloat64) out.type = ElementType::kFloat32;
    if (layout.out_rows > 0) {
      impl_->add_tensor("out", out, layout.query_heads, layout.out_rows, layout.dv);
    }
    if (layout.hidden > 0) {
      impl_->add_tensor("wo", out, layout.query_heads, layout.dv, layout.hidden);
    }
    if (layout.repeat_rows == 0) return;
    impl_->add_tensor("q_repeat", storage, layout.query_heads, layout.repeat_rows, layout.d);
    impl_->add_tensor("k_repeat", storage, layout.kv_heads, layout.repeat_rows, layout.d);
  });
}

void DumpWriter::write_evidence(const Evidence& evidence) {
  impl_->guarded([&] {
    std::vector<std::int32_t> spans;
    for (const auto& [first, last] : evidence.spans) {
      spans.push_back(static_cast<std::int32_t>(first));
      spans.push_back(static_cast<std::int32_t>(last));
    }
    hdf5::write_dataset(impl_->sequence.get(), "evidence", {evidence.spans.size(), 2},
                        spans.data());
    const hdf5::Handle dataset = hdf5::open_dataset(impl_->sequence.get(), "evidence");
    const hsize_t count = evidence.rows.size();
    const hdf5::Handle space(H5Screate_simple(1, &count, nullptr));
    const hdf5::Handle attribute(
        H5Acreate2(dataset.get(), "rows", H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
    hdf5::check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, evidence.rows.data()));
  });
}

void DumpWriter::write_repeat(const RepeatPass& pass) {
  impl_->guarded([&] {
    std::vector<std::int32_t> numbers;
    for (const auto& [first, end, rows] : pass.parts) {
      for (const Index each : {first, end, rows}) {
        numbers.push_back(static_cast<std::int32_t>(each));
      }
    }
    hdf5::write_dataset(impl_->sequence.get(), "repeat", {pass.parts.size(), 3}, numbers.data());
  });
}

void DumpWriter::write_residual_norms(const std::vector<double>& norms) {
  impl_->guarded([&] {
    hdf5::write_dataset(impl_->layer.get(), "residual_norm", {norms.size()}, norms.data());
  });
}

void DumpWriter::write_head(const std::string& tensor, Index head,
                            const std::vector<double>& values) {
  const Target& target = impl_->targets.at(tensor);
  if (std::ssize(values) != target.dims[1] * target.dims[2]) {
    throw std::logic_error("write_head: " + tensor + " needs all rows of a head");
  }
  const ElementType type = target.storage.type;
  std::vector<std::byte> bytes(values.size() * element_bytes(type));
  from_doubles(type, values.data(), values.size(), bytes.data());
  impl_->guarded([&] {
    const std::array<hsize_t, 3> start = {static_cast<hsize_t>(head), 0, 0};
    const std::array<hsize_t, 3> size = {1, static_cast<hsize_t>(target.dims[1]),
                                         static_cast<hsize_t>(target.dims[2])};
    const hdf5::Handle file_space(H5Dget_space(target.dataset.get()));
    hdf5::check(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr,
                                    size.data(), nullptr));
    const hdf5::Handle memory_space(H5Screate_simple(3, size.data(), nullptr));
    const hdf5::Handle stored(H5Dget_type(target.dataset.get()));
    hdf5::check(H5Dwrite(target.dataset.get(), stored.get(), memory_space.get(), file_space.get(),
                         H5P_DEFAULT, bytes.data()));
  });
}

void DumpWriter::finish() {
  impl_->guarded([&] { hdf5::check(H5Fflush(impl_->file.get(), H5F_SCOPE_GLOBAL)); });
  impl_->close();
  replace_file(impl_->partial, impl_->path);
  impl_->finished = true;
}

}  // namespace kvbench
