#include "dump/global_heap.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace kvbench::hdf5 {
namespace {

constexpr std::uint64_t kLargestHeap = std::uint64_t{64} << 20;

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

// The file of an attribute, beside the library.
class RawFile {
 public:
  explicit RawFile(hid_t attribute) : file_(H5Iget_file_id(attribute)) {
    const Handle creation(H5Fget_create_plist(file_.get()));
    check(H5Pget_userblock(creation.get(), &start_));
    check(H5Pget_sizes(creation.get(), &address_bytes_, &size_bytes_));
    if (address_bytes_ > 8 || size_bytes_ > 8) throw Error("addresses of more than 8 bytes");
    void* driver = nullptr;
    check(H5Fget_vfd_handle(file_.get(), H5P_DEFAULT, &driver));
    descriptor_ = *static_cast<const int*>(driver);
  }

  std::size_t address_bytes() const { return address_bytes_; }
  std::size_t size_bytes() const { return size_bytes_; }

  // Of `bytes` from `address` on what the file has.
  std::string read(std::uint64_t address, std::size_t bytes) const {
    std::string text(bytes, '\0');
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t got = ::pread(descriptor_, text.data() + done, bytes - done,
                                  static_cast<off_t>(start_ + address + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    text.resize(done);
    return text;
  }

 private:
  Handle file_;
  hsize_t start_ = 0;
  std::size_t address_bytes_ = 0;
  std::size_t size_bytes_ = 0;
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
    const std::size_t size_bytes = file.size_bytes();
    const std::size_t head = padded(8 + size_bytes);  // of the heap, and of each object
    bytes_ = file.read(address, head);
    if (bytes_.size() < head || !bytes_.starts_with("GCOL")) fail("is none");
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
      objects_[index] = std::string_view(bytes_).substr(at, length);
      at = std::min(at + padded(length), size);
    }
  }

  std::string text(std::uint64_t index, std::uint64_t length) const {
    const auto found = objects_.find(index);
    if (found == objects_.end()) fail(fmt::format("has no object {}", index));
    const std::string_view object = found->second;
    if (length > object.size()) {
      fail(fmt::format("has {} bytes for a text of {}", object.size(), length));
    }
    const std::string_view whole = object.substr(0, length);
    return std::string(whole.substr(0, whole.find('\0')));
  }

  std::uint64_t address() const { return address_; }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(fmt::format("a text's heap at byte {} {}", address_, what));
  }

  std::uint64_t address_;
  std::string bytes_;
  std::unordered_map<std::uint64_t, std::string_view> objects_;
};

}  // namespace

std::vector<std::string> read_heap_texts(hid_t attribute, std::size_t count,
                                         std::uint64_t most_bytes) {
  static const bool converts = add_conversion();
  static_cast<void>(converts);
  const RawFile file(attribute);
  constexpr std::size_t kNumber = 4;  // bytes of a text's length, and of an object's index
  const std::size_t reference_bytes = kNumber + file.address_bytes() + kNumber;
  const Handle type(H5Tcreate(H5T_OPAQUE, reference_bytes));
  std::string references(count * reference_bytes, '\0');
  check(H5Aread(attribute, type.get(), references.data()));
  std::vector<std::string> texts(count);
  std::unique_ptr<const Heap> heap;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view at = std::string_view(references).substr(i * reference_bytes);
    const std::uint64_t length = number_at(at, 0, kNumber);
    const std::uint64_t address = number_at(at, kNumber, file.address_bytes());
    if (length == 0 || address == 0) continue;
    bytes += length;
    if (bytes > most_bytes) throw Error(fmt::format("texts of more than {} bytes", most_bytes));
    if (!heap || heap->address() != address) heap = std::make_unique<const Heap>(file, address);
    texts[i] = heap->text(number_at(at, kNumber + file.address_bytes(), kNumber), length);
  }
  return texts;
}

}  // namespace kvbench::hdf5
