#include "dump/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "dump/structure.hpp"
#include "dump/tensor.hpp"

namespace kvbench {
namespace {

constexpr Index kBlockBytes = Index{1} << 16;

// Text in which no name or value can pass for another's.
std::string quoted(const std::string& text) { return fmt::format("{}:{}", text.size(), text); }

class Content {
 public:
  Content(hid_t file, const DumpInfo& info) : file_(file), info_(info) {}

  void add_attributes(const std::string& path) {
    const hdf5::Handle object(H5Oopen(file_, path.c_str(), H5P_DEFAULT));
    for (const std::string& name : hdf5::attribute_names(object.get())) {
      if (name == "created") continue;
      text_ += fmt::format("{} @{}={}\n", quoted(path), quoted(name),
                           quoted(hdf5::attribute_text(object.get(), name)));
    }
  }

  void add_rope(const std::string& parent) {
    const std::string path = (parent == "/" ? "" : parent) + "/rope";
    if (H5Lexists(file_, path.c_str(), H5P_DEFAULT) <= 0) return;
    add_attributes(path);
    const hdf5::Handle dataset(H5Dopen2(file_, (path + "/inv_freq").c_str(), H5P_DEFAULT));
    const hdf5::Handle space(H5Dget_space(dataset.get()));
    std::vector<double> values(hdf5::extent(space.get()).at(0));
    hdf5::check(
        H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    text_ += fmt::format("{} {}\n", quoted(path), fmt::join(values, " "));
  }

  void add_token_ids(const std::string& sequence) {
    const std::string path = sequence + "/token_ids";
    if (H5Lexists(file_, path.c_str(), H5P_DEFAULT) <= 0) return;
    const hdf5::Handle dataset(H5Dopen2(file_, path.c_str(), H5P_DEFAULT));
    const hdf5::Handle space(H5Dget_space(dataset.get()));
    std::vector<std::int64_t> ids(hdf5::extent(space.get()).at(0));
    hdf5::check(
        H5Dread(dataset.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids.data()));
    text_ += fmt::format("{} {} {}\n", quoted(path), ids.size(),
                         hash128_hex({reinterpret_cast<const char*>(ids.data()),
                                      ids.size() * sizeof(std::int64_t)}));
  }

  void add_layer(const std::string& sequence, const LayerInfo& layer) {
    const std::string path = layer_path(sequence, layer.index);
    add_attributes(path);
    add_rope(path);
    add_tensor(path + "/k", 0);
    if (layer.out_rows > 0) add_tensor(path + "/out", layer.tokens - layer.out_rows);
    add_tensor(path + "/q", layer.tokens - layer.query_rows);
    add_tensor(path + "/v", 0);
  }

  std::string hash(std::uint64_t hashed_whole) const {
    Hash128 hash;
    hash.add(text_);
    const std::uint64_t samples = bytes_ < hashed_whole ? bytes_ : hashed_whole / 4;
    for (const auto& [path, token] : tensors_) {
      const Tensor tensor(file_, path, info_.path + ": " + path, token);
      for (Index head = 0; head < tensor.heads(); ++head) add_head(hash, tensor, head, samples);
    }
    return hash.hex();
  }

 private:
  void add_tensor(const std::string& path, Index row_token) {
    const Tensor tensor(file_, path, info_.path + ": " + path, row_token);
    text_ += fmt::format("{} {} [{}, {}, {}]\n", quoted(path), element_name(tensor.type()),
                         tensor.heads(), tensor.rows(), tensor.columns());
    bytes_ += static_cast<std::uint64_t>(tensor.heads()) *
              static_cast<std::uint64_t>(tensor.rows()) *
              static_cast<std::uint64_t>(tensor.columns()) * element_bytes(tensor.type());
    tensors_.emplace_back(path, row_token);
  }

  // This head's share of `samples` bytes.
  void add_head(Hash128& hash, const Tensor& tensor, Index head, std::uint64_t samples) const {
    const auto add = [&](Index, Index, const std::vector<std::byte>& bytes) {
      hash.add(bytes.data(), bytes.size());
    };
    if (samples >= bytes_) {
      tensor.for_each_slab(head, 0, tensor.rows(), add);
      return;
    }
    const Index row_bytes = tensor.columns() * static_cast<Index>(element_bytes(tensor.type()));
    const Index block = std::max<Index>(1, kBlockBytes / row_bytes);
    const Index blocks = (tensor.rows() + block - 1) / block;
    const double share = static_cast<double>(samples) / static_cast<double>(bytes_);
    const Index taken = std::clamp(static_cast<Index>(share * static_cast<double>(blocks)),
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
  std::string text_;
  std::uint64_t bytes_ = 0;
  std::vector<std::pair<std::string, Index>> tensors_;  // path, token of row 0
};

}  // namespace

std::string content_fingerprint(hid_t file, const DumpInfo& info, std::uint64_t hashed_whole) {
  try {
    Content content(file, info);
    content.add_attributes("/");
    content.add_rope("/");
    for (const SequenceInfo& sequence : info.sequences) {
      const std::string path = "/sequences/" + sequence.name;
      content.add_attributes(path);
      content.add_token_ids(path);
      for (const LayerInfo& layer : sequence.layers) content.add_layer(sequence.name, layer);
    }
    return content.hash(hashed_whole);
  } catch (const hdf5::Error& error) {
    throw InputError(fmt::format("{}: cannot be read ({}); the file is truncated or damaged",
                                 info.path, error.what()));
  }
}

}  // namespace kvbench
