#include "hdf5/global_heap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "system/read_at.hpp"

namespace kvbench::hdf5 {
namespace {

// A heap has one text, or several of at most 64 KiB together.
constexpr std::uint64_t kLargestHeap = std::uint64_t{2} << 20;
// Bytes of heaps of one file that are kept, and that are read in all: sound ones lie side by side,
// and attributes that were written together have their texts together.
constexpr std::uint64_t kMostKept = std::uint64_t{16} << 20;
constexpr std::uint64_t kMostRead = std::uint64_t{64} << 20;

// Hands over references as they are in the file: with it HDF5 "converts" variable-length strings
// to opaque values of the same size.
herr_t keep_references(hid_t source, hid_t target, H5T_cdata_t* conversion, std::size_t,
                       std::size_t, std::size_t, void*, void*, hid_t) {
  if (conversion->command != H5T_CONV_INIT) return 0;
  conversion->need_bkg = H5T_BKG_NO;
  return H5Tget_size(source) == H5Tget_size(target) ? 0 : -1;
}

bool add_conversion() {
  const Handle text(H5Tcopy(H5T_C_S1));
  check(H5Tset_size(text.get(), H5T_VARIABLE));
  const Handle opaque(H5Tcreate(H5T_OPAQUE, 1));
  check(H5Tregister(H5T_PERS_SOFT, "references", text.get(), opaque.get(), keep_references));
  return true;
}

// How a file has its numbers.
struct Format {
  explicit Format(const Handle& file) {
    const Handle creation(H5Fget_create_plist(file.get()));
    check(H5Pget_userblock(creation.get(), &start));
    check(H5Pget_sizes(creation.get(), &address_bytes, &size_bytes));
    if (address_bytes > 8 || size_bytes > 8) throw Error("addresses or sizes of more than 8 bytes");
  }

  hsize_t start = 0;  // of addresses
  std::size_t address_bytes = 0;
  std::size_t size_bytes = 0;
};

// A file that the library has open, beside it.
class RawFile {
 public:
  RawFile(const Handle& file, const Format& format) : format_(format) {
    void* driver = nullptr;
    check(H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &driver));
    descriptor_ = *static_cast<const int*>(driver);
  }

  const Format& format() const { return format_; }

  // Of `bytes` from `address` on what the file has.
  std::string read(std::uint64_t address, std::size_t bytes) const {
    std::string text(bytes, '\0');
    const auto offset = static_cast<std::int64_t>(format_.start + address);
    text.resize(read_at(descriptor_, offset, text).value_or(0));
    return text;
  }

 private:
  const Format& format_;
  int descriptor_ = -1;
};

// An unsigned number of that many bytes, the lowest first.
std::uint64_t number_at(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t number = 0;
  for (std::size_t i = size; i > 0; --i) {
    number = number << 8 | static_cast<unsigned char>(bytes.at(at + i - 1));
  }
  return number;
}

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// A heap ("collection") of a file, and where in it its objects are.
class Heap {
 public:
  Heap(const RawFile& file, std::uint64_t address) : address_(address) {
    const std::size_t size_bytes = file.format().size_bytes;
    const std::size_t head = padded(8 + size_bytes);  // of the heap, and of each object
    bytes_ = file.read(address, head);
    constexpr std::string_view kBegin("GCOL\1", 5);  // the name, and the version
    if (bytes_.size() < head || !bytes_.starts_with(kBegin)) fail("is none");
    const std::uint64_t size = number_at(bytes_, 8, size_bytes);
    if (size < head || size > kLargestHeap) fail(fmt::format("is of {} bytes", size));
    bytes_ = file.read(address, size);
    if (bytes_.size() < size) fail("reaches beyond the end of the file");
    for (std::uint64_t at = head; size - at >= head;) {
      const std::uint64_t index = number_at(bytes_, at, 2);
      if (index == 0) break;  // free from here on
      const std::uint64_t length = number_at(bytes_, at + 8, size_bytes);
      at += head;
      if (length > size - at)
        fail(fmt::format("has an object of {} bytes, beyond its end", length));
      objects_.emplace_back(index, std::string_view(bytes_).substr(at, length));
      at = std::min(at + padded(length), size);
    }
    std::ranges::stable_sort(objects_, {}, &Object::first);
  }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  std::string text(std::uint64_t index, std::uint64_t length) const {
    const auto found = std::ranges::lower_bound(objects_, index, {}, &Object::first);
    if (found == objects_.end() || found->first != index) {
      fail(fmt::format("has no object {}", index));
    }
    const std::string_view object = found->second;
    if (length > object.size()) {
      fail(fmt::format("has {} bytes for a text of {}", object.size(), length));
    }
    const std::string_view whole = object.substr(0, length);
    return std::string(whole.substr(0, whole.find('\0')));
  }

  std::uint64_t bytes() const { return bytes_.size(); }

 private:
  using Object = std::pair<std::uint64_t, std::string_view>;  // by its index

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(fmt::format("a text's heap at byte {} {}", address_, what));
  }

  std::uint64_t address_;
  std::string bytes_;
  std::vector<Object> objects_;
};

// The heaps of one file that were read.
class Heaps {
 public:
  Heaps(const Handle& file, unsigned long number) : number_(number), format_(file) {}

  unsigned long number() const { return number_; }
  const Format& format() const { return format_; }

  const Heap& at(const RawFile& file, std::uint64_t address) {
    if (const auto found = heaps_.find(address); found != heaps_.end()) return found->second;
    if (kept_ > kMostKept) {
      heaps_.clear();
      kept_ = 0;
    }
    const Heap& heap = heaps_.try_emplace(address, file, address).first->second;
    kept_ += heap.bytes();
    read_ += heap.bytes();
    if (read_ > kMostRead) {
      throw Error(fmt::format("the heaps of its texts are of more than {} MiB", kMostRead >> 20));
    }
    return heap;
  }

 private:
  unsigned long number_;
  Format format_;
  std::unordered_map<std::uint64_t, Heap> heaps_;
  std::uint64_t kept_ = 0, read_ = 0;
};

// Those of the file that an attribute is in, kept until texts of another are read.
Heaps& heaps_of(hid_t attribute, const Handle& file) {
  static std::unique_ptr<Heaps> last;
  ObjectInfo object;
  check(H5Oget_info2(attribute, &object, H5O_INFO_BASIC));
  if (!last || last->number() != object.fileno) {
    last = std::make_unique<Heaps>(file, object.fileno);  // of this opening of the file
  }
  return *last;
}

}  // namespace

std::vector<std::string> read_heap_texts(hid_t attribute, std::size_t count,
                                         std::uint64_t most_bytes) {
  const Session session;
  static const bool converts = add_conversion();
  static_cast<void>(converts);
  const Handle opened(H5Iget_file_id(attribute));
  Heaps& heaps = heaps_of(attribute, opened);
  const RawFile file(opened, heaps.format());
  const std::size_t address_bytes = heaps.format().address_bytes;
  constexpr std::size_t kNumber = 4;  // bytes of a text's length, and of an object's index
  const std::size_t reference_bytes = kNumber + address_bytes + kNumber;
  const Handle type(H5Tcreate(H5T_OPAQUE, reference_bytes));
  std::string references(count * reference_bytes, '\0');
  check(H5Aread(attribute, type.get(), references.data()));
  std::vector<std::string> texts(count);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view at = std::string_view(references).substr(i * reference_bytes);
    const std::uint64_t length = number_at(at, 0, kNumber);
    const std::uint64_t address = number_at(at, kNumber, address_bytes);
    if (length == 0 || address == 0) continue;
    bytes += length;
    if (bytes > most_bytes) {
      throw Error(fmt::format("texts of more than {} bytes; shorten them", most_bytes));
    }
    texts[i] =
        heaps.at(file, address).text(number_at(at, kNumber + address_bytes, kNumber), length);
  }
  return texts;
}

}  // namespace kvbench::hdf5
