#include "hdf5/stored_elements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvbench {
namespace {

constexpr std::size_t kMostKept = 4096;  // chunks of any size, except those of a row

// A chunk as it is stored, into room of its size.
std::uint32_t read_chunk(hid_t dataset, const hsize_t* offset, std::vector<std::byte>& stored) {
  std::uint32_t left_out = 0;
#if H5_VERSION_GE(2, 0, 0)
  std::size_t size = stored.size();
  hdf5::check(H5Dread_chunk2(dataset, H5P_DEFAULT, offset, &left_out, stored.data(), &size));
#else
  hdf5::check(H5Dread_chunk(dataset, H5P_DEFAULT, offset, &left_out, stored.data()));
#endif
  return left_out;
}

template <class T>
std::vector<T> all_of(hdf5::Handle dataset, hid_t memory_type) {
  const StoredElements elements(std::move(dataset));
  std::vector<T> values(elements.all().elements());
  elements.read_as(memory_type, elements.all(), values.data());
  return values;
}

}  // namespace

StoredElements::StoredElements(hdf5::Handle dataset)
    : dataset_(std::move(dataset)),
      space_(H5Dget_space(dataset_.get())),
      type_(H5Dget_type(dataset_.get())),
      element_bytes_(H5Tget_size(type_.get())) {
  const auto dims = hdf5::extent(space_.get());
  if (dims.size() > size_.size()) throw hdf5::Error("has more than three dimensions");
  rank_ = dims.size();
  size_ = sizes_of(dims);
}

const std::optional<FilteredChunks>& StoredElements::chunks() const {
  if (!asked_) chunks_ = filtered_chunks(dataset_.get());
  asked_ = true;
  return chunks_;
}

const std::vector<std::byte>& StoredElements::chunk_at(const Sizes& start) const {
  if (const auto found = kept_.find(start); found != kept_.end()) return found->second;
  const std::size_t most = std::max<std::size_t>(chunks_->kept_bytes / chunks_->bytes, 1);
  const std::size_t across = (size_[2] + chunks_->size[2] - 1) / chunks_->size[2];
  while (kept_.size() >= std::min(most, std::max(kMostKept, across))) {
    kept_.erase(order_.front());
    order_.pop_front();
  }
  const hsize_t* offset = start.data() + (start.size() - rank_);
  hsize_t bytes = 0;
  hdf5::check(H5Dget_chunk_storage_size(dataset_.get(), offset, &bytes));
  // What gzip adds to what it cannot make smaller, and checksums.
  if (bytes > chunks_->bytes + chunks_->bytes / 64 + 1024) {
    throw hdf5::Error(
        fmt::format("a chunk of {} bytes is compressed to {}", chunks_->bytes, bytes));
  }
  if (bytes == 0) throw hdf5::Error("a chunk was never written");
  std::vector<std::byte> stored(bytes);
  std::uint32_t left_out = read_chunk(dataset_.get(), offset, stored);
  bool edge = false;
  for (std::size_t i = 0; i < size_.size(); ++i) {
    edge = edge || chunks_->size[i] > size_[i] - start[i];
  }
  if (edge && chunks_->edges_whole) left_out = ~std::uint32_t{0};
  auto decoded = decode_chunk(chunks_->filters, left_out, std::move(stored), chunks_->bytes);
  order_.push_back(start);
  return kept_.emplace(start, std::move(decoded)).first->second;
}

void StoredElements::read(const Block& wanted, const Destination& to) const {
  if (!chunks()) return read_by_library(type_.get(), wanted, to);
  const Sizes& chunk = chunks_->size;
  Sizes first{}, end{};
  for (std::size_t i = 0; i < end.size(); ++i) {
    end[i] = wanted.start[i] + wanted.size[i];
    if (end[i] > size_[i]) throw hdf5::Error("elements outside of their dataset");
    first[i] = wanted.start[i] / chunk[i] * chunk[i];
  }
  Sizes at{};
  for (at[0] = first[0]; at[0] < end[0]; at[0] += chunk[0]) {
    for (at[1] = first[1]; at[1] < end[1]; at[1] += chunk[1]) {
      for (at[2] = first[2]; at[2] < end[2]; at[2] += chunk[2]) {
        copy_shared(chunk_at(at), at, wanted, to);
      }
    }
  }
}

// What a chunk that starts `at` has of `wanted`.
void StoredElements::copy_shared(const std::vector<std::byte>& chunk, const Sizes& at,
                                 const Block& wanted, const Destination& to) const {
  Sizes begin{}, end{};
  for (std::size_t i = 0; i < begin.size(); ++i) {
    begin[i] = std::max(at[i], wanted.start[i]);
    end[i] = std::min(at[i] + chunks_->size[i], wanted.start[i] + wanted.size[i]);
  }
  const auto place = [](const Sizes& shape, hsize_t head, hsize_t row, hsize_t column) {
    return (head * shape[1] + row) * shape[2] + column;
  };
  for (hsize_t head = begin[0]; head < end[0]; ++head) {
    for (hsize_t row = begin[1]; row < end[1]; ++row) {
      const hsize_t from = place(chunks_->size, head - at[0], row - at[1], begin[2] - at[2]);
      const hsize_t into =
          place(to.size, head - wanted.start[0] + to.start[0], row - wanted.start[1] + to.start[1],
                begin[2] - wanted.start[2] + to.start[2]);
      std::memcpy(to.elements + into * element_bytes_, chunk.data() + from * element_bytes_,
                  (end[2] - begin[2]) * element_bytes_);
    }
  }
}

void StoredElements::read_as(hid_t memory_type, const Block& wanted, void* out) const {
  if (wanted.elements() == 0) return;
  auto* const bytes = static_cast<std::byte*>(out);
  if (!chunks()) return read_by_library(memory_type, wanted, {bytes, wanted.size, {}});
  const std::size_t converted = H5Tget_size(memory_type);
  std::vector<std::byte> room(wanted.elements() * std::max(element_bytes_, converted));
  read(wanted, room.data());
  hdf5::check(
      H5Tconvert(type_.get(), memory_type, wanted.elements(), room.data(), nullptr, H5P_DEFAULT));
  std::memcpy(bytes, room.data(), wanted.elements() * converted);
}

void StoredElements::read_by_library(hid_t memory_type, const Block& wanted,
                                     const Destination& to) const {
  if (rank_ == 0) {
    return hdf5::check(
        H5Dread(dataset_.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to.elements));
  }
  const std::size_t first = wanted.size.size() - rank_;
  const hdf5::Handle memory(
      H5Screate_simple(static_cast<int>(rank_), to.size.data() + first, nullptr));
  hdf5::check(H5Sselect_hyperslab(memory.get(), H5S_SELECT_SET, to.start.data() + first, nullptr,
                                  wanted.size.data() + first, nullptr));
  hdf5::check(H5Sselect_hyperslab(space_.get(), H5S_SELECT_SET, wanted.start.data() + first,
                                  nullptr, wanted.size.data() + first, nullptr));
  hdf5::check(
      H5Dread(dataset_.get(), memory_type, memory.get(), space_.get(), H5P_DEFAULT, to.elements));
}

std::vector<double> all_doubles(hdf5::Handle dataset) {
  return all_of<double>(std::move(dataset), H5T_NATIVE_DOUBLE);
}

std::vector<std::int64_t> all_integers(hdf5::Handle dataset) {
  return all_of<std::int64_t>(std::move(dataset), H5T_NATIVE_INT64);
}

}  // namespace kvbench
