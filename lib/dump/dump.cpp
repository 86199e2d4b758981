#include "dump/dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "dump/fingerprint.hpp"
#include "dump/layer_output.hpp"
#include "dump/structure.hpp"
#include "dump/tensor.hpp"
#include "hdf5/first_reading.hpp"
#include "hdf5/open_file.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

// The tensors of the layer that was read last, kept open: chunks that span several heads are then
// decoded once.
struct Queries {
  const LayerInfo* layer;
  Tensor q;
  std::optional<Tensor> wo_v_l1;
};
struct OpenLayer {
  std::string sequence;
  int layer = -1;
  std::optional<Tensor> k, v;    // no v where values lie in the keys
  std::vector<Queries> queries;  // queries of the layer itself, then of its readers
  std::optional<Tensor> q_repeat, k_repeat;
};

// The arrays of a stream that was given back, to be read into.
class Rooms {
 public:
  explicit Rooms(std::unique_ptr<StreamData> from) {
    if (!from) return;
    for (auto* each : {&from->keys, &from->values, &from->repeat_keys}) add(*each);
    for (auto* all : {&from->queries, &from->wo_v_l1, &from->repeat_queries}) {
      for (UnfilledDoubles& each : *all) add(each);
    }
  }

  // The smallest for so many numbers, unless that wastes half of it; else none, and the others go
  // before more memory is asked for.
  UnfilledDoubles take(Index count) {
    const std::size_t size = count;
    auto best = rooms_.end();
    for (auto room = rooms_.begin(); room != rooms_.end(); ++room) {
      if (room->capacity() < size || room->capacity() > 2 * size) continue;
      if (best == rooms_.end() || room->capacity() < best->capacity()) best = room;
    }
    if (best == rooms_.end()) {
      rooms_.clear();
      return {};
    }
    UnfilledDoubles room = std::move(*best);
    rooms_.erase(best);
    return room;
  }

 private:
  void add(UnfilledDoubles& room) {
    if (room.capacity() > 0) rooms_.push_back(std::move(room));
  }

  std::vector<UnfilledDoubles> rooms_;
};

void check_head(const std::string& location, const LayerInfo& info, int query_head) {
  if (query_head >= 0 && query_head < info.query_heads) return;
  throw InputError(fmt::format("{}: there is no query head {}; heads are 0 to {}", location,
                               query_head, info.query_heads - 1));
}

template <class Read>
auto within_memory(const std::string& location, Read read) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    throw InputError(location +
                     ": does not fit in memory; choose fewer tokens or a larger machine");
  }
}

}  // namespace

void renew_dumps_after_fork() { hdf5::renew_lock_after_fork(); }

struct Dump::Impl {
  UniqueFd lock;
  hdf5::Handle file;
  std::optional<FileState> opened;  // none: it is in memory
  TensorHashes known;               // hashes of an outline
  bool first_in_child = true;
  mutable bool was_read_first = false;
  DumpInfo info;
  mutable OpenLayer open;
  mutable std::optional<ContentReading> content;  // the last one
  mutable std::mutex spare_mutex;
  mutable std::unique_ptr<StreamData> spare;  // the last one that reuse() took

  // Reads the content, unless that was the last reading.
  const ContentReading& read_whole(std::uint64_t hashed_whole) const;

  // Any reading of the content, so that a child has read elements before this process does.
  const ContentReading& first_reading() const {
    constexpr std::uint64_t kSurveyed = std::uint64_t{1} << 26;  // read whole
    return content ? *content : read_whole(kSurveyed);
  }

  // Has a child read elements. Faults of single elements are reported where they are read.
  void read_first() const {
    if (content || was_read_first) return;
    try {
      first_reading();
    } catch (const FirstReadingError&) {
      throw;
    } catch (const InputError&) {
    }
    was_read_first = true;
  }

  // Result of `read`, after the first reading.
  template <class Read>
  auto elements(const std::string& location, Read read) const {
    if (first_in_child) read_first();
    return within_memory(location, [&] { return unchanged(read); });
  }

  // Result of `read`, unless the file is another by then: HDF5 reads zeros behind the end of a file
  // that was cut.
  template <class Read>
  auto unchanged(Read read) const {
    const hdf5::Session session;
    auto result = read();
    if (!opened || state_of(file, info.path) == *opened) return result;
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

  Tensor tensor(const std::string& sequence, int layer, const char* name, Index row_token,
                const char* row_name = "token") const {
    const std::string path = layer_path(sequence, layer) + "/" + name;
    return {file.get(), path, info.path + ": " + path, row_token, row_name};
  }

  const OpenLayer& open_layer(const std::string& sequence, const LayerInfo& layer) const {
    if (open.layer != layer.index || open.sequence != sequence) {
      open = OpenLayer();
      const int keys_of = layer.kv_layer.value_or(layer.index);
      open.k = tensor(sequence, keys_of, "k", 0);
      if (!layer.value_in_key) open.v = tensor(sequence, keys_of, "v", 0);
      add_queries(sequence, layer);
      for (const int reader : layer.readers) add_queries(sequence, this->layer(sequence, reader));
      if (layer.repeat) {
        open.q_repeat = tensor(sequence, layer.index, "q_repeat", 0, "row");
        open.k_repeat = tensor(sequence, layer.index, "k_repeat", 0, "row");
      }
      open.sequence = sequence;
      open.layer = layer.index;
    }
    return open;
  }

  void add_queries(const std::string& sequence, const LayerInfo& layer) const {
    open.queries.push_back(
        {&layer, tensor(sequence, layer.index, "q", layer.tokens - layer.query_rows), {}});
    if (!layer.wo_v_l1) return;
    open.queries.back().wo_v_l1 = tensor(sequence, layer.index, "wo_v_l1", 0);
  }

  UnfilledDoubles output_projection(const std::string& sequence, int index, int query_head) const {
    const LayerInfo& of = layer(sequence, index);
    const std::string location = fmt::format("{}: {}", info.path, layer_path(sequence, index));
    if (of.hidden == 0) {
      throw InputError(location + ": has no wo, the output projection; dump it with the layer");
    }
    check_head(location, of, query_head);
    return elements(location, [&] {
      return tensor(sequence, index, "wo", 0, "row").read(query_head, 0, of.dv);
    });
  }

  std::unique_ptr<StreamData> take_spare() const {
    const std::lock_guard<std::mutex> lock(spare_mutex);
    return std::move(spare);
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
    Rooms rooms(take_spare());
    const auto read_into_room = [&](const Tensor& tensor, Index head, Index rows) {
      return tensor.read(head, 0, rows, rooms.take(rows * tensor.columns()));
    };
    data->keys = read_into_room(*tensors.k, kv_head, n);
    if (layer.value_in_key) {
      for (Index j = 0; j < n; ++j) {
        const double* key = data->keys.data() + j * layer.d;
        data->values.insert(data->values.end(), key, key + layer.dv);
      }
    } else {
      data->values = read_into_room(*tensors.v, kv_head, n);
    }
    stream.keys = {data->keys.data(), n, layer.d};
    stream.values = {data->values.data(), n, layer.dv};
    if (stream.shape.key_bias) {
      const auto bias = layer.key_bias.begin() + kv_head * layer.d;
      stream.key_bias.assign(bias, bias + layer.d);
    }
    for (const auto& [from, q, wo_v_l1] : tensors.queries) {
      const Index group = from->query_heads / layer.kv_heads;
      const auto add_by_head = [&](const std::vector<double>& all, std::vector<double>& out) {
        if (all.empty()) return;
        const auto first = all.begin() + kv_head * group;
        out.insert(out.end(), first, first + group);
      };
      add_by_head(from->sinks, stream.sinks);
      add_by_head(from->alibi_slopes, stream.alibi_slopes);
      for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        data->queries.push_back(read_into_room(q, head, query_rows));
        stream.queries.emplace_back(data->queries.back().data(), query_rows, layer.d);
        if (wo_v_l1) {
          data->wo_v_l1.push_back(read_into_room(*wo_v_l1, head, n));
          stream.wo_v_l1.push_back(data->wo_v_l1.back().data());
        }
        if (layer.repeat) {
          data->repeat_queries.push_back(tensors.q_repeat->read(head, 0, layer.repeat_rows));
          stream.repeat_queries.emplace_back(data->repeat_queries.back().data(), layer.repeat_rows,
                                             layer.d);
        }
      }
    }
    if (stream.shape.hidden > 0) {
      const int first = kv_head * stream.shape.heads_per_kv;
      stream.output_projection = [this, sequence, index = layer.index, first](int g) {
        return output_projection(sequence, index, first + g);
      };
    }
    if (layer.repeat) {
      data->repeat_keys = tensors.k_repeat->read(kv_head, 0, layer.repeat_rows);
      stream.repeat_keys = {data->repeat_keys.data(), layer.repeat_rows, layer.d};
    }
    return data;
  }
};

Dump::Dump(const std::string& path, const DumpOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->lock = lock_dump_file(path);
  StructureReading reading;
  if (options.memory_limit > 0) reading.chunk_memory = options.memory_limit;
  if (options.first_in_child) {
    const auto read = [&](const Step& step) {
      const hdf5::Handle file = open_dump_file(path);
      StructureReading stepwise = reading;
      stepwise.step = step;
      const DumpInfo info = read_structure(file.get(), path, stepwise);
      read_descriptions(file.get(), info, step);
      return std::vector<std::string>();
    };
    read_in_child(path, read);
  }
  impl_->first_in_child = options.first_in_child;
  const hdf5::Session session;
  impl_->file = open_dump_file(path);
  impl_->opened = state_of(impl_->file, path);
  impl_->info = read_structure(impl_->file.get(), path, reading);
}

Dump::Dump(const std::string& name, std::span<const std::byte> image, TensorHashes hashes)
    : impl_(std::make_unique<Impl>()) {
  impl_->first_in_child = false;
  impl_->known = std::move(hashes);
  const hdf5::Session session;
  impl_->file = hdf5::open_image(image);
  StructureReading reading;
  reading.is_outline = !impl_->known.empty();
  impl_->info = read_structure(impl_->file.get(), name, reading);
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
  return impl_->elements(location, [&] { return impl_->read(sequence, info, kv_head, tokens); });
}

void Dump::reuse(std::unique_ptr<StreamData> data) const {
  const std::lock_guard<std::mutex> lock(impl_->spare_mutex);
  impl_->spare = std::move(data);
}

UnfilledDoubles Dump::read_out(const std::string& sequence, int layer, int query_head) const {
  const LayerInfo& info = impl_->layer(sequence, layer);
  const std::string location = fmt::format("{}: {}", impl_->info.path, layer_path(sequence, layer));
  if (info.out_rows == 0) {
    throw InputError(location + ": has no out, the model's own output; dump it for a few rows");
  }
  check_head(location, info, query_head);
  return impl_->elements(location, [&] {
    return impl_->tensor(sequence, layer, "out", info.tokens - info.out_rows)
        .read(query_head, 0, info.out_rows);
  });
}

UnfilledDoubles Dump::read_wo(const std::string& sequence, int layer, int query_head) const {
  return impl_->output_projection(sequence, layer, query_head);
}

std::vector<double> Dump::read_residual_norms(const std::string& sequence, int layer) const {
  if (impl_->layer(sequence, layer).residual_rows == 0) return {};
  const std::string path = layer_path(sequence, layer) + "/residual_norm";
  return impl_->elements(impl_->info.path, [&] {
    return read_residual_norm(impl_->file.get(), path, impl_->info.path + ": " + path);
  });
}

const ContentReading& Dump::Impl::read_whole(std::uint64_t hashed_whole) const {
  if (content && content->hashed_whole == hashed_whole) return *content;
  content = within_memory(info.path, [&] {
    return unchanged([&] {
      if (first_in_child) return read_content_in_child(file.get(), info, hashed_whole);
      return read_content(file.get(), info, hashed_whole, [] {}, known.empty() ? nullptr : &known);
    });
  });
  return *content;
}

std::string Dump::fingerprint() const { return impl_->read_whole(kHashedWhole).fingerprint; }

TensorHashes Dump::tensor_hashes() const { return impl_->read_whole(kHashedWhole).hashes; }

std::vector<std::string> Dump::notes() const { return impl_->first_reading().notes; }

std::string Dump::state() const {
  const ContentReading& content = impl_->read_whole(kHashedWhole);
  if (!content.sampled || !impl_->opened) return "";
  const FileState& state = *impl_->opened;
  return fmt::format("{} bytes, {}.{:09}", state.size, state.changed_seconds,
                     state.changed_nanoseconds);
}

}  // namespace kvbench
