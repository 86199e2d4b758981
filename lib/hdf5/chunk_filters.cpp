#include "hdf5/chunk_filters.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <new>
#include <utility>

#include "hdf5/hdf5.hpp"

namespace kvbench {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kChecksumBytes = 4;

// `most`: the bytes of a sound chunk.
Bytes decompressed(const Bytes& stored, std::size_t most) {
  Bytes out(most + 1);  // so that a stream without its end is not taken for one that goes on
  uLongf size = out.size();
  const int status = uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                                reinterpret_cast<const Bytef*>(stored.data()), stored.size());
  if (status == Z_MEM_ERROR) throw std::bad_alloc();
  if (status == Z_BUF_ERROR || (status == Z_OK && size > most)) {
    throw hdf5::Error(fmt::format("a chunk decodes to more than its {} bytes", most));
  }
  if (status != Z_OK) throw hdf5::Error("the gzip data of a chunk are damaged");
  out.resize(size);
  return out;
}

// Puts together `count` elements of kWidth bytes from planes of that many bytes.
template <std::size_t kWidth>
void interleave(const std::byte* planes, std::size_t count, std::byte* out) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t byte = 0; byte < kWidth; ++byte) {
      out[i * kWidth + byte] = planes[byte * count + i];
    }
  }
}

void interleave(const std::byte* planes, std::size_t count, std::size_t width, std::byte* out) {
  for (std::size_t byte = 0; byte < width; ++byte) {
    for (std::size_t i = 0; i < count; ++i) out[i * width + byte] = planes[byte * count + i];
  }
}

// Elements of `width` bytes from all their first bytes, all their second bytes, .. What is left
// over at the end was left in its place.
Bytes unshuffled(const Bytes& planes, std::size_t width) {
  if (width <= 1) return planes;
  const std::size_t count = planes.size() / width;
  Bytes out(planes.size());
  if (width == 2) {
    interleave<2>(planes.data(), count, out.data());
  } else if (width == 4) {
    interleave<4>(planes.data(), count, out.data());
  } else {
    interleave(planes.data(), count, width, out.data());
  }
  const auto whole = static_cast<std::ptrdiff_t>(count * width);
  std::copy(planes.begin() + whole, planes.end(), out.begin() + whole);
  return out;
}

// A sum modulo 65535 of numbers that were added without it; 65535 stands for 0 but in a sum of
// zeros, as where carries are added to what is below them.
std::uint32_t folded(std::uint64_t sum) {
  return sum == 0 ? 0 : static_cast<std::uint32_t>((sum - 1) % 65535 + 1);
}

// Fletcher's checksum of 16-bit words, high byte first; a last odd byte is a high one.
std::uint32_t checksum(const std::byte* bytes, std::size_t size) {
  constexpr std::size_t kWordsAtOnce = std::size_t{1} << 20;  // their sums stay below 2^64
  std::uint64_t sum = 0, sum_of_sums = 0;
  const std::size_t words = (size + 1) / 2;
  for (std::size_t word = 0; word < words; ++word) {
    const std::size_t at = 2 * word;
    sum += std::to_integer<std::uint64_t>(bytes[at]) << 8;
    if (at + 1 < size) sum += std::to_integer<std::uint64_t>(bytes[at + 1]);
    sum_of_sums += sum;
    if ((word + 1) % kWordsAtOnce == 0) {
      sum = folded(sum);
      sum_of_sums = folded(sum_of_sums);
    }
  }
  return folded(sum_of_sums) << 16 | folded(sum);
}

// The bytes before the checksum at their end.
Bytes verified(Bytes bytes) {
  if (bytes.size() < kChecksumBytes) throw hdf5::Error("a chunk lacks its checksum");
  const std::size_t size = bytes.size() - kChecksumBytes;
  std::uint32_t stored = 0;  // little-endian
  for (std::size_t i = 0; i < kChecksumBytes; ++i) {
    stored |= std::to_integer<std::uint32_t>(bytes[size + i]) << 8 * i;
  }
  const std::uint32_t own = checksum(bytes.data(), size);
  // HDF5 up to 1.6.2 swapped the bytes of both sums.
  const std::uint32_t swapped = (own & 0x00ff00ffU) << 8 | (own >> 8 & 0x00ff00ffU);
  if (stored != own && stored != swapped) throw hdf5::Error("a chunk differs from its checksum");
  bytes.resize(size);
  return bytes;
}

}  // namespace

std::vector<std::byte> decode_chunk(const std::vector<ChunkFilter>& filters, std::uint32_t left_out,
                                    std::vector<std::byte> stored, std::size_t bytes) {
  const auto was_applied = [&](std::size_t i) { return (left_out >> i & 1U) == 0; };
  std::size_t wanted = bytes;  // with the checksums that are not yet taken off
  for (std::size_t i = 0; i < filters.size(); ++i) {
    if (was_applied(i) && filters[i].kind == FilterKind::kChecksum) wanted += kChecksumBytes;
  }
  for (std::size_t i = filters.size(); i-- > 0;) {
    if (!was_applied(i)) continue;
    switch (filters[i].kind) {
      case FilterKind::kGzip:
        stored = decompressed(stored, wanted);
        break;
      case FilterKind::kShuffle:
        stored = unshuffled(stored, filters[i].element_bytes);
        break;
      case FilterKind::kChecksum:
        stored = verified(std::move(stored));
        wanted -= kChecksumBytes;
        break;
    }
  }
  if (stored.size() == bytes) return stored;
  throw hdf5::Error(fmt::format("a chunk of {} bytes decodes to {}", bytes, stored.size()));
}

}  // namespace kvbench
