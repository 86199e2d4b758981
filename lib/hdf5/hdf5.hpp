// A small owning layer over the HDF5 C API. Nothing outside lib/dump includes it.
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kvbench::hdf5 {

// A call of the HDF5 library that failed; what() is the library's own innermost description.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Refusal to read from outside of the file: behind an external link, in external storage, through a
// virtual dataset. These may lead to any file, to a pipe that blocks, or to themselves; none is
// followed.
class OutsideError : public Error {
 public:
  using Error::Error;
};

// The description of the last failed call, e.g. "truncated file: eof = 96, ...".
std::string last_error();

// Owns one HDF5 identifier of any kind (file, group, dataset, dataspace, datatype, attribute,
// property list). Throws Error when made from a failed call's result.
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id);
  ~Handle();
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

// Throws Error when `status`, the result of an HDF5 call, says that the call failed.
void check(herr_t status);

// Held while several calls belong together and other threads may use the library too: it is
// commonly built without locks of its own. Nests within a thread. Failed calls of this thread print
// nothing from then on; they are reported by Error.
class Session {
 public:
  Session();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// To be called first in the child of a fork() by a thread that has a Session: the lock that the
// child finds belongs to a thread that it does not have.
void renew_lock_after_fork();

// kReadUnlocked: for a file that the caller has locked, or that needs no lock. Others are locked,
// but on file systems without locks.
enum class Access { kRead, kReadUnlocked, kReadWrite };
Handle open_file(const std::string& path, Access access);
// A file whose bytes are in memory, for reading. They are used in place and must live as long.
Handle open_image(std::span<const std::byte> image);
// Keeps little of the metadata of a group's file in memory, for a file whose objects are read one
// after the other. The library's own limit is 32 MiB as stored, of which it makes ten times as
// much. There is room for the names of the group where they lie in one piece.
void limit_metadata(hid_t group);
// How many members groups of a new file may have. The oldest format has all names of a group in one
// piece, which the library reads and writes anew at every access once it is larger than its cache
// of metadata: near half a million names of 32 letters if that is the library's own. Groups for
// millions are written as HDF5 1.8 and later read them, and the cache is small, as there is no use
// of an object twice.
enum class Objects { kThousands, kMillions };
// Creates or truncates, locked likewise. Objects in it carry no time stamps.
Handle create_file(const std::string& path, Objects objects = Objects::kThousands);
// Sets properties with which a file is created to those of kMillions.
void suit_millions(hid_t file_access);

enum class Kind { kNone, kGroup, kDataset, kOther };
// Kind of `name` below `parent`; kNone where there is no such link. Throws OutsideError where it
// leads to another file, and Error where it cannot be followed: what is damaged must not pass for
// absent.
Kind kind_of(hid_t parent, const std::string& name);
bool has_link(hid_t parent, const std::string& name);
// These throw OutsideError for what leads to another file, by an external link or a soft link
// through one; open_dataset also for a dataset whose elements are not its own.
Handle open_object(hid_t parent, const std::string& name);
Handle open_group(hid_t parent, const std::string& name);
// `cache_bytes`: of its chunk cache; 0: the library's own choice.
Handle open_dataset(hid_t parent, const std::string& name, std::size_t cache_bytes = 0);
Handle create_group(hid_t parent, const std::string& name);
// Names of the links in a group, ascending; in one pass, whatever the group's layout. Throws where
// two are the same, as only damage makes them: the library would open one of them for both.
std::vector<std::string> children(hid_t group);
// Visits those of a group that may have millions, in a file of this size, in the order in which the
// file has them; no two are in memory. Ends with what `visit` throws, and with an Error for more
// links than the file has room for.
void each_child(hid_t group, std::uint64_t file_bytes,
                const std::function<void(const std::string& name)>& visit);

// The extent of a dataset or attribute; empty for a scalar.
std::vector<std::uint64_t> extent(hid_t dataspace);

bool has_attribute(hid_t object, const std::string& name);
std::vector<std::string> attribute_names(hid_t object);  // ascending
// Whether a type is the enumeration of FALSE and TRUE that h5py makes of truth values.
bool is_truth_type(hid_t type);
bool is_truth_value(hid_t object, const std::string& name);  // the same of an attribute's type

// A single value, scalar or array of one. nullopt if the attribute has another type (a number
// with a fraction read as integer included) or shape. Both kinds of strings, any width of number,
// truth values as 0 and 1.
std::optional<std::int64_t> read_integer(hid_t object, const std::string& name);
std::optional<double> read_number(hid_t object, const std::string& name);
std::optional<std::string> read_string(hid_t object, const std::string& name);
// Any attribute as text that does not depend on how it is stored: numbers by their shortest form,
// several values joined by ", ", and the type's size if it is neither number nor string.
std::string attribute_text(hid_t object, const std::string& name);

void write_attribute(hid_t object, const std::string& name, const std::string& value);
void write_attribute(hid_t object, const std::string& name, std::int64_t value);
void write_attribute(hid_t object, const std::string& name, double value);

// Writes a whole contiguous dataset of doubles or integers.
void write_dataset(hid_t parent, const std::string& name, const std::vector<std::uint64_t>& dims,
                   const double* values);
void write_dataset(hid_t parent, const std::string& name, const std::vector<std::uint64_t>& dims,
                   const std::int64_t* values);
void write_dataset(hid_t parent, const std::string& name, const std::vector<std::uint64_t>& dims,
                   const std::int32_t* values);

// Properties of new datasets: no time stamps, so that equal content makes equal files.
Handle dataset_properties();

}  // namespace kvbench::hdf5
