#include "dump/dump.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/error.hpp"
#include "dump/crash_report.hpp"
#include "dump/fingerprint.hpp"
#include "dump/first_reading.hpp"
#include "dump/open_file.hpp"
#include "dump/structure.hpp"
#include "dump/tensor.hpp"

namespace kvbench {
namespace {

// The tensors of the layer that was read last, kept open: chunks that span several heads are then
// decoded once.
struct OpenLayer {
  std::string sequence;
  int layer = -1;
  std::optional<Tensor> q, k, v;
};

template <class Read>
auto within_memory(const std::string& location, Read read) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    throw InputError(location +
                     ": does not fit in memory; choose fewer tokens or a larger machine");
  }
}

// What the system records of an open file's content.
struct FileState {
  std::int64_t size = 0;
  std::int64_t changed_seconds = 0;
  std::int64_t changed_nanoseconds = 0;

  bool operator==(const FileState&) const = default;
};

FileState state_of(hid_t file, const std::string& path) {
  void* driver = nullptr;
  struct stat now = {};
  if (H5Fget_vfd_handle(file, H5P_DEFAULT, &driver) < 0 ||
      ::fstat(*static_cast<const int*>(driver), &now) != 0) {
    throw InputError(fmt::format("{}: cannot be read ({})", path, std::strerror(errno)));
  }
  return {now.st_size, now.st_mtim.tv_sec, now.st_mtim.tv_nsec};
}

}  // namespace

const LayerInfo* SequenceInfo::find_layer(int index) const {
  for (const LayerInfo& layer : layers) {
    if (layer.index == index) return &layer;
  }
  return nullptr;
}

const SequenceInfo* DumpInfo::find_sequence(const std::string& name) const {
  for (const SequenceInfo& sequence : sequences) {
    if (sequence.name == name) return &sequence;
  }
  return nullptr;
}

StreamShape stream_shape(const DumpInfo& dump, const LayerInfo& layer, Index tokens) {
  StreamShape shape;
  shape.tokens = tokens == 0 ? layer.tokens : tokens;
  shape.d = layer.d;
  shape.dv = layer.dv;
  shape.heads_per_kv = static_cast<int>(layer.query_heads / layer.kv_heads);
  shape.first_query = std::min(layer.tokens - layer.query_rows, shape.tokens);
  shape.window = layer.window;
  shape.scale = layer.scale;
  shape.softcap = layer.softcap;
  shape.n_layers = dump.n_layers;
  shape.rope = layer.rope;
  return shape;
}

struct Dump::Impl {
  UniqueFd lock;
  hdf5::Handle file;
  FileState opened;
  DumpInfo info;
  mutable OpenLayer open;

  // What `read` returns, unless the file is another by then: HDF5 reads zeros behind the end of a
  // file that was cut.
  template <class Read>
  auto unchanged(Read read) const {
    const hdf5::Session session;
    const ReadingMark mark(info.path);
    auto result = read();
    if (state_of(file.get(), info.path) == opened) return result;
    throw InputError(info.path + ": was modified while open; restore the dump and rerun");
  }

  const LayerInfo& layer(const std::string& sequence, int index) const {
    const SequenceInfo* found = info.find_sequence(sequence);
    if (found == nullptr) {
      throw InputError(fmt::format("{}: there is no sequence '{}'", info.path, sequence));
    }
    const LayerInfo* layer = found->find_layer(index);
    if (layer == nullptr) {
      throw InputError(
          fmt::format("{}: sequence '{}' has no layer {}", info.path, sequence, index));
    }
    return *layer;
  }

  Tensor tensor(const std::string& sequence, int layer, const char* name, Index row_token) const {
    const std::string path = layer_path(sequence, layer) + "/" + name;
    return {file.get(), path, info.path + ": " + path, row_token};
  }

  const OpenLayer& open_layer(const std::string& sequence, const LayerInfo& layer) const {
    if (open.layer != layer.index || open.sequence != sequence) {
      open = OpenLayer();
      open.q = tensor(sequence, layer.index, "q", layer.tokens - layer.query_rows);
      open.k = tensor(sequence, layer.index, "k", 0);
      open.v = tensor(sequence, layer.index, "v", 0);
      open.sequence = sequence;
      open.layer = layer.index;
    }
    return open;
  }

  std::unique_ptr<StreamData> read(const std::string& sequence, const LayerInfo& layer, int kv_head,
                                   Index tokens) const {
    const OpenLayer& tensors = open_layer(sequence, layer);
    auto data = std::make_unique<StreamData>();
    Stream& stream = data->stream;
    stream.id = {sequence, layer.index, kv_head};
    stream.shape = stream_shape(info, layer, tokens);
    const Index n = stream.shape.tokens;
    const Index query_rows = n - stream.shape.first_query;
    data->keys = tensors.k->read(kv_head, 0, n);
    data->values = tensors.v->read(kv_head, 0, n);
    stream.keys = {data->keys.data(), n, layer.d};
    stream.values = {data->values.data(), n, layer.dv};
    for (Index g = 0; g < stream.shape.heads_per_kv; ++g) {
      data->queries.push_back(
          tensors.q->read(kv_head * stream.shape.heads_per_kv + g, 0, query_rows));
      stream.queries.emplace_back(data->queries.back().data(), query_rows, layer.d);
    }
    return data;
  }
};

Dump::Dump(const std::string& path, const DumpOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->lock = lock_dump_file(path);
  StructureReading reading;
  if (options.memory_limit > 0) reading.chunk_memory = options.memory_limit;
  if (options.first_in_child) {
    read_in_child(path, [&](const Step& step) {
      const hdf5::Handle file = open_dump_file(path);
      StructureReading stepwise = reading;
      stepwise.step = step;
      const DumpInfo info = read_structure(file.get(), path, stepwise);
      read_descriptions(file.get(), info, step);
    });
  }
  const hdf5::Session session;
  const ReadingMark mark(path);
  impl_->file = open_dump_file(path);
  impl_->opened = state_of(impl_->file.get(), path);
  impl_->info = read_structure(impl_->file.get(), path, reading);
}

Dump::~Dump() {
  const hdf5::Session session;
  impl_.reset();
}
Dump::Dump(Dump&&) noexcept = default;
Dump& Dump::operator=(Dump&&) noexcept = default;

const DumpInfo& Dump::info() const { return impl_->info; }

std::unique_ptr<StreamData> Dump::read_stream(const std::string& sequence, int layer, int kv_head,
                                              Index tokens) const {
  const LayerInfo& info = impl_->layer(sequence, layer);
  const std::string location = fmt::format("{}: {}", impl_->info.path, layer_path(sequence, layer));
  if (kv_head < 0 || kv_head >= info.kv_heads) {
    throw InputError(fmt::format("{}: there is no KV head {}; heads are 0 to {}", location, kv_head,
                                 info.kv_heads - 1));
  }
  if (tokens < 0 || tokens > info.tokens) {
    throw InputError(
        fmt::format("{}: requested {} tokens, the sequence has {}", location, tokens, info.tokens));
  }
  return within_memory(location, [&] {
    return impl_->unchanged([&] { return impl_->read(sequence, info, kv_head, tokens); });
  });
}

std::vector<double> Dump::read_out(const std::string& sequence, int layer, int query_head) const {
  const LayerInfo& info = impl_->layer(sequence, layer);
  const std::string location = fmt::format("{}: {}", impl_->info.path, layer_path(sequence, layer));
  if (info.out_rows == 0) {
    throw InputError(location + ": has no out, the model's own output; dump it for a few rows");
  }
  if (query_head < 0 || query_head >= info.query_heads) {
    throw InputError(fmt::format("{}: there is no query head {}; heads are 0 to {}", location,
                                 query_head, info.query_heads - 1));
  }
  return within_memory(location, [&] {
    return impl_->unchanged([&] {
      return impl_->tensor(sequence, layer, "out", info.tokens - info.out_rows)
          .read(query_head, 0, info.out_rows);
    });
  });
}

std::string Dump::fingerprint() const {
  return within_memory(impl_->info.path, [&] {
    return impl_->unchanged(
        [&] { return content_fingerprint(impl_->file.get(), impl_->info, kHashedWhole); });
  });
}

}  // namespace kvbench
