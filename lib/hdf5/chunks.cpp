#include "hdf5/chunks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace kvbench {
namespace {

// As large as a slab, and as the library makes it where nothing is asked.
constexpr std::uint64_t kSmallestCache = std::uint64_t{1} << 20;
// Chunks that span several heads are kept for the next head up to this much.
constexpr std::uint64_t kLargestCache = std::uint64_t{32} << 20;

struct Chunk {
  Sizes dims{};
  std::uint64_t bytes = 0;
};

// The properties that a dataset was made with: of its layout and its filters. Copying them takes
// longer than asking for any one.
hdf5::Handle properties_of(hid_t dataset) { return hdf5::Handle(H5Dget_create_plist(dataset)); }

std::optional<Chunk> chunk_of(hid_t dataset, const hdf5::Handle& properties) {
  if (H5Pget_layout(properties.get()) != H5D_CHUNKED) return std::nullopt;
  std::array<hsize_t, 3> given{};
  const int rank = H5Pget_chunk(properties.get(), 3, given.data());
  if (rank < 1 || rank > 3) return std::nullopt;
  const hdf5::Handle type(H5Dget_type(dataset));
  Chunk chunk;
  chunk.dims = sizes_of({given.begin(), given.begin() + rank});
  const Sizes& dims = chunk.dims;
  if (std::count(dims.begin(), dims.end(), hsize_t{0}) > 0) {
    throw hdf5::Error("chunks of size 0");
  }
  // The library keeps chunks below 4 GiB, so that this cannot overflow.
  chunk.bytes = dims[0] * dims[1] * dims[2] * H5Tget_size(type.get());
  return chunk;
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Holds the chunks that a slab touches, and those of the whole head if the next head reads
// them again: a chunk that falls out of the cache is decoded twice.
std::uint64_t cache_bytes(const Chunk& chunk, const Sizes& dims) {
  const std::uint64_t across = ceil_div(dims[2], chunk.dims[2]);
  const std::uint64_t cache = std::max(kSmallestCache, across * chunk.bytes);
  const std::uint64_t whole_head = across * ceil_div(dims[1], chunk.dims[1]) * chunk.bytes;
  return chunk.dims[0] > 1 && whole_head <= kLargestCache ? std::max(cache, whole_head) : cache;
}

// Whether nothing was compressed: an optional filter leaves alone what it cannot make smaller.
bool is_stored_whole(hid_t dataset) {
  const hdf5::Handle space(H5Dget_space(dataset));
  const hdf5::Handle type(H5Dget_type(dataset));
  const hssize_t elements = H5Sget_simple_extent_npoints(space.get());
  return elements >= 0 && H5Dget_storage_size(dataset) / H5Tget_size(type.get()) >=
                              static_cast<std::uint64_t>(elements);
}

struct Filter {
  H5Z_filter_t id = 0;
  unsigned flags = 0;
  std::string name;  // "lzf (filter 32000)", "filter 300"
};

// The filters of a dataset in the order in which they were applied.
std::vector<Filter> filters_of(const hdf5::Handle& properties) {
  std::vector<Filter> filters;
  const int count = H5Pget_nfilters(properties.get());
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    std::array<char, 64> name{};
    const H5Z_filter_t id = H5Pget_filter2(properties.get(), static_cast<unsigned>(i), &flags,
                                           &values, nullptr, name.size() - 1, name.data(), &config);
    if (id < 0) throw hdf5::Error(hdf5::last_error());
    const std::string_view text(name.data());
    filters.push_back(
        {id, flags,
         text.empty() ? fmt::format("filter {}", id) : fmt::format("{} (filter {})", text, id)});
  }
  return filters;
}

// A filter that the chunks were written with and the library does not have.
std::optional<std::string> missing_filter(hid_t dataset, const std::vector<Filter>& filters) {
  for (const Filter& filter : filters) {
    if (H5Zfilter_avail(filter.id) > 0) continue;
    if ((filter.flags & H5Z_FLAG_OPTIONAL) != 0 && is_stored_whole(dataset)) continue;
    return filter.name;
  }
  return std::nullopt;
}

// Bytes that a dataset without chunks lacks, as text: HDF5 1.10 reads what lies behind its bytes,
// and zeros for one that was never written. nullopt if it lacks none, or if it has chunks.
std::optional<std::string> lacking_bytes(hid_t dataset, const hdf5::Handle& properties) {
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  if (layout != H5D_COMPACT && layout != H5D_CONTIGUOUS) return std::nullopt;
  const std::uint64_t stored = H5Dget_storage_size(dataset);
  const hdf5::Handle type(H5Dget_type(dataset));
  const hdf5::Handle space(H5Dget_space(dataset));
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) return std::nullopt;  // no element
  const auto dims = hdf5::extent(space.get());
  std::uint64_t wanted = H5Tget_size(type.get());
  for (const auto size : dims) {
    if (__builtin_mul_overflow(wanted, std::uint64_t{size}, &wanted)) {
      return fmt::format("has a shape of 2^64 bytes and more, [{}]", fmt::join(dims, ", "));
    }
  }
  if (wanted <= stored) return std::nullopt;
  if (stored == 0) {
    return fmt::format("was never written, of shape [{}]; make it again", fmt::join(dims, ", "));
  }
  return fmt::format(
      "lacks {} of the {} bytes of shape [{}]; the file is damaged, copy or make it again",
      wanted - stored, wanted, fmt::join(dims, ", "));
}

}  // namespace

Sizes sizes_of(const std::vector<std::uint64_t>& dims) {
  Sizes sizes = {1, 1, 1};
  std::copy_backward(dims.begin(), dims.end(), sizes.end());
  return sizes;
}

std::uint64_t chunk_bytes(hid_t dataset) {
  const hdf5::Handle properties = properties_of(dataset);
  const auto chunk = chunk_of(dataset, properties);
  if (!chunk) return 0;
  const hdf5::Handle space(H5Dget_space(dataset));
  const Sizes dims = sizes_of(hdf5::extent(space.get()));
  const bool is_filtered = H5Pget_nfilters(properties.get()) > 0;
  // Its bytes as stored, and as filters make them. gzip doubles a buffer until they fit, and the
  // cache keeps buffers at that size.
  return is_filtered ? 2 * cache_bytes(*chunk, dims) + 4 * chunk->bytes
                     : cache_bytes(*chunk, dims) + 2 * chunk->bytes;
}

std::optional<std::string> unreadable_storage(hid_t dataset) {
  const hdf5::Handle properties = properties_of(dataset);
  if (auto lacking = lacking_bytes(dataset, properties)) return lacking;
  if (const auto filter = missing_filter(dataset, filters_of(properties))) {
    return fmt::format(
        "is compressed with {}, which the HDF5 library of this machine does not have; store it "
        "with gzip, e.g. h5repack -f GZIP=4 OLD NEW where that filter is installed",
        *filter);
  }
  const auto chunk = chunk_of(dataset, properties);
  if (!chunk) return std::nullopt;
  const hdf5::Handle space(H5Dget_space(dataset));
  const Sizes dims = sizes_of(hdf5::extent(space.get()));
  double chunks = 1.0;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    chunks *= ceil_div(dims[i], chunk->dims[i]);
  }
  hsize_t written = 0;  // releases of HDF5 differ in whether they take H5S_ALL here
  hdf5::check(H5Dget_num_chunks(dataset, space.get(), &written));
  const double missing = chunks - written;
  if (missing <= 0.0) return std::nullopt;
  return fmt::format("lacks {:.0f} of {:.0f} chunks, which were never written; make it again",
                     missing, chunks);
}

std::uint64_t chunk_rows(hid_t dataset) {
  const auto chunk = chunk_of(dataset, properties_of(dataset));
  return chunk ? chunk->dims[1] : 0;
}

hdf5::Handle open_for_reading(hid_t parent, const std::string& name) {
  hdf5::Handle dataset = hdf5::open_dataset(parent, name);
  const auto chunk = chunk_of(dataset.get(), properties_of(dataset.get()));
  if (!chunk) return dataset;
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const std::uint64_t cache = cache_bytes(*chunk, sizes_of(hdf5::extent(space.get())));
  if (cache <= kSmallestCache && chunk->dims[0] == 1)
    return dataset;          // the library's own is enough
  dataset = hdf5::Handle();  // the cache of one that is open stays as it is
  return hdf5::open_dataset(parent, name, cache);
}

}  // namespace kvbench
