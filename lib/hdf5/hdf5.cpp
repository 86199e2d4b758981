#include "hdf5/hdf5.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <limits>
#include <new>

namespace kvbench::hdf5 {
namespace {

// Larger attributes cannot be a dump's; they are not read.
constexpr hsize_t kLargestAttribute = 1 << 20;
// Up to this part of a chunk cache's list is searched for chunks that were read whole, which go
// first, before the oldest one goes. With all of it the library drops only those that were read
// whole, and a cache grows without end where chunks reach beyond their tensor.
constexpr double kReadWholeFirst = 0.75;
// Bytes of a file that a link takes at least, of a compact group.
constexpr std::uint64_t kMinLink = 16;
// The end of a message on what is in another file.
constexpr const char* kCopy = "; all data must lie in the file itself, copy them into it";

Handle open_attribute(hid_t object, const std::string& name) {
  return Handle(H5Aopen(object, name.c_str(), H5P_DEFAULT));
}

std::size_t count(const Handle& attribute) {
  const Handle space(H5Aget_space(attribute.get()));
  const hssize_t points = H5Sget_simple_extent_npoints(space.get());
  if (points < 0) throw Error(last_error());
  const Handle type(H5Aget_type(attribute.get()));
  const hsize_t size = H5Tget_size(type.get());
  if (size == 0 || static_cast<hsize_t>(points) > kLargestAttribute / size) {
    throw Error("attribute is larger than 1 MiB");
  }
  return points;
}

template <class T>
std::vector<T> read_values(const Handle& attribute, hid_t memory_type) {
  std::vector<T> values(count(attribute));
  if (!values.empty()) check(H5Aread(attribute.get(), memory_type, values.data()));
  return values;
}

std::vector<std::string> read_variable_strings(const Handle& attribute, const Handle& type,
                                               std::size_t points) {
  std::vector<char*> read(points, nullptr);
  check(H5Aread(attribute.get(), type.get(), read.data()));
  std::vector<std::string> texts(points);
  hsize_t bytes = 0;
  for (std::size_t i = 0; i < points; ++i) {
    if (read[i] != nullptr) texts[i] = read[i];
    bytes += texts[i].size();
  }
  const Handle space(H5Aget_space(attribute.get()));
  check(H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, read.data()));
  if (bytes > kLargestAttribute) throw Error("attribute is larger than 1 MiB");
  return texts;
}

std::vector<std::string> read_strings(const Handle& attribute, const Handle& type) {
  const std::size_t points = count(attribute);
  if (points == 0) return {};
  if (H5Tis_variable_str(type.get()) > 0) {
    return read_variable_strings(attribute, type, points);
  }
  const std::size_t size = H5Tget_size(type.get());
  std::vector<char> bytes(points * size);
  check(H5Aread(attribute.get(), type.get(), bytes.data()));
  std::vector<std::string> texts(points);
  const bool space_padded = H5Tget_strpad(type.get()) == H5T_STR_SPACEPAD;
  for (std::size_t i = 0; i < points; ++i) {
    const char* begin = bytes.data() + i * size;
    texts[i].assign(begin, std::find(begin, begin + size, '\0'));
    while (space_padded && !texts[i].empty() && texts[i].back() == ' ') texts[i].pop_back();
  }
  return texts;
}

template <class T>
void write_scalar(hid_t object, const std::string& name, hid_t type, const T* value) {
  const Handle space(H5Screate(H5S_SCALAR));
  const Handle attribute(
      H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  check(H5Awrite(attribute.get(), type, value));
}

void write_whole(hid_t parent, const std::string& name, const std::vector<std::uint64_t>& dims,
                 hid_t file_type, hid_t memory_type, const void* values) {
  const std::vector<hsize_t> sizes(dims.begin(), dims.end());
  const Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
  const Handle properties = dataset_properties();
  const Handle dataset(H5Dcreate2(parent, name.c_str(), file_type, space.get(), H5P_DEFAULT,
                                  properties.get(), H5P_DEFAULT));
  check(H5Dwrite(dataset.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
}

// Set where a link was refused because it leads to another file.
thread_local bool met_external_link = false;

herr_t refuse_external_link(const char*, const char*, const char*, const char*, unsigned*, hid_t,
                            void*) {
  met_external_link = true;
  return -1;
}

// Properties for following links, of one of the access classes: no external link is followed.
hid_t make_within_file(hid_t access_class) {
  const hid_t properties = H5Pcreate(access_class);
  if (properties < 0) throw Error(last_error());
  check(H5Pset_elink_cb(properties, refuse_external_link, nullptr));
  return properties;
}

// Access properties for objects, groups and datasets: made once, as that takes longer than
// following a link.
hid_t object_access() {
  static const hid_t properties = make_within_file(H5P_LINK_ACCESS);
  met_external_link = false;
  return properties;
}

hid_t group_access() {
  static const hid_t properties = make_within_file(H5P_GROUP_ACCESS);
  met_external_link = false;
  return properties;
}

hid_t dataset_access() {
  static const hid_t properties = make_within_file(H5P_DATASET_ACCESS);
  met_external_link = false;
  return properties;
}

// Throws for what a call with such properties refused.
void check_within_file() {
  if (met_external_link)
    throw OutsideError(std::string("leads to another file by an external link") + kCopy);
}

void check_elements(const Handle& dataset) {
  const Handle properties(H5Dget_create_plist(dataset.get()));
  if (H5Pget_layout(properties.get()) == H5D_VIRTUAL) {
    throw OutsideError(
        "is a virtual dataset, made of elements of other files; store them in the dump itself, "
        "with "
        "those files in place, e.g. h5repack -l CONTI OLD NEW");
  }
  const int files = H5Pget_external_count(properties.get());
  if (files < 0) throw Error(last_error());
  if (files == 0) return;
  std::string file(4096, '\0');
  check(H5Pget_external(properties.get(), 0, file.size() - 1, file.data(), nullptr, nullptr));
  throw OutsideError(fmt::format("has its elements in another file, '{}' (external storage){}",
                                 file.c_str(), kCopy));
}

// The library's description in one line: "file write failed: time = .., errno = 28, error message =
// 'No space left on device', .." is "file write failed: No space left on device".
std::string essence(const std::string& description) {
  const std::string key = "error message = '";
  const std::size_t at = description.find(key);
  if (at == std::string::npos) return description.substr(0, description.find('\n'));
  const std::size_t start = at + key.size();
  return description.substr(0, description.find(':')) + ": " +
         description.substr(start, description.find('\'', start) - start);
}

}  // namespace

std::string last_error() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
        auto& description = *static_cast<std::string*>(data);
        if (description.empty() && error->desc != nullptr) description = error->desc;
        return 0;
      },
      &text);
  return text.empty() ? "unknown HDF5 error" : essence(text);
}

Handle::Handle(hid_t id) : id_(id) {
  if (id < 0) throw Error(last_error());
}

Handle::~Handle() {
  if (id_ < 0) return;
  switch (H5Iget_type(id_)) {
    case H5I_FILE:
      H5Fclose(id_);
      break;
    case H5I_GROUP:
      H5Gclose(id_);
      break;
    case H5I_DATATYPE:
      H5Tclose(id_);
      break;
    case H5I_DATASPACE:
      H5Sclose(id_);
      break;
    case H5I_DATASET:
      H5Dclose(id_);
      break;
    case H5I_ATTR:
      H5Aclose(id_);
      break;
    case H5I_GENPROP_LST:
      H5Pclose(id_);
      break;
    default:
      break;
  }
}

void check(herr_t status) {
  if (status < 0) throw Error(last_error());
}

namespace {

std::recursive_mutex& library() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

Session::Session() : lock_(library()) {
  // At exit the library would close once more what a full disk kept it from closing; 1.10.8 crashes
  // on that. Whatever is open here is closed by its Handle.
  static const herr_t once = H5dont_atexit();
  static_cast<void>(once);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void renew_lock_after_fork() { new (&library()) std::recursive_mutex; }

bool has_link(hid_t parent, const std::string& name) {
  const htri_t exists = H5Lexists(parent, name.c_str(), object_access());
  check_within_file();
  if (exists < 0) throw Error(name + ": " + last_error());
  return exists > 0;
}

Kind kind_of(hid_t parent, const std::string& name) {
  if (!has_link(parent, name)) return Kind::kNone;
  const hid_t id = H5Oopen(parent, name.c_str(), object_access());
  check_within_file();
  if (id < 0) throw Error(name + ": " + last_error());
  const Handle object(id);
  switch (H5Iget_type(id)) {
    case H5I_GROUP:
      return Kind::kGroup;
    case H5I_DATASET:
      return Kind::kDataset;
    default:
      return Kind::kOther;
  }
}

Handle open_object(hid_t parent, const std::string& name) {
  const hid_t id = H5Oopen(parent, name.c_str(), object_access());
  check_within_file();
  return Handle(id);
}

Handle open_group(hid_t parent, const std::string& name) {
  const hid_t id = H5Gopen2(parent, name.c_str(), group_access());
  check_within_file();
  return Handle(id);
}

Handle open_dataset(hid_t parent, const std::string& name, std::size_t cache_bytes) {
  Handle cached;
  if (cache_bytes > 0) {
    cached = Handle(H5Pcopy(dataset_access()));
    check(H5Pset_chunk_cache(cached.get(), 4099, cache_bytes, kReadWholeFirst));
  }
  const hid_t access = cached ? cached.get() : dataset_access();
  const hid_t id = H5Dopen2(parent, name.c_str(), access);
  check_within_file();
  Handle dataset(id);
  check_elements(dataset);
  return dataset;
}

Handle create_group(hid_t parent, const std::string& name) {
  const Handle properties(H5Pcreate(H5P_GROUP_CREATE));
  check(H5Pset_obj_track_times(properties.get(), false));
  return Handle(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT));
}

void each_child(hid_t group, std::uint64_t file_bytes,
                const std::function<void(const std::string& name)>& visit) {
  struct Listing {
    const std::function<void(const std::string& name)>& visit;
    std::uint64_t left;
    std::exception_ptr thrown;  // not through the library
  } listing{visit, file_bytes / kMinLink, nullptr};
  const herr_t status = H5Literate(
      group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr,
      [](hid_t, const char* name, const H5L_info_t*, void* data) -> herr_t {
        auto& at = *static_cast<Listing*>(data);
        try {
          if (at.left == 0) throw Error("a group has more members than the file has room for");
          --at.left;
          at.visit(name);
          return 0;
        } catch (...) {
          at.thrown = std::current_exception();
          return 1;  // enough
        }
      },
      &listing);
  if (listing.thrown) std::rethrow_exception(listing.thrown);
  check(status);
}

std::vector<std::string> children(hid_t group) {
  std::vector<std::string> names;
  each_child(group, std::numeric_limits<std::uint64_t>::max(),
             [&](const std::string& name) { names.push_back(name); });
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) throw Error("two members of a group are named " + *twin);
  return names;
}

std::vector<std::uint64_t> extent(hid_t dataspace) {
  const int rank = H5Sget_simple_extent_ndims(dataspace);
  if (rank < 0) throw Error(last_error());
  std::vector<hsize_t> dims(rank);
  if (rank > 0 && H5Sget_simple_extent_dims(dataspace, dims.data(), nullptr) < 0) {
    throw Error(last_error());
  }
  return {dims.begin(), dims.end()};
}

bool has_attribute(hid_t object, const std::string& name) {
  const htri_t exists = H5Aexists(object, name.c_str());
  if (exists < 0) throw Error(name + ": " + last_error());
  return exists > 0;
}

std::vector<std::string> attribute_names(hid_t object) {
  std::vector<std::string> names;
  check(H5Aiterate2(
      object, H5_INDEX_NAME, H5_ITER_INC, nullptr,
      [](hid_t, const char* name, const H5A_info_t*, void* data) -> herr_t {
        static_cast<std::vector<std::string>*>(data)->emplace_back(name);
        return 0;
      },
      &names));
  std::sort(names.begin(), names.end());
  return names;
}

bool is_truth_type(hid_t type) {
  if (H5Tget_class(type) != H5T_ENUM || H5Tget_nmembers(type) != 2) return false;
  const Handle base(H5Tget_super(type));
  const std::size_t size = H5Tget_size(type);
  for (const int value : {0, 1}) {
    std::array<std::byte, 8> bytes{};
    const int member = H5Tget_member_index(type, value == 0 ? "FALSE" : "TRUE");
    if (member < 0 || size > bytes.size()) return false;
    check(H5Tget_member_value(type, static_cast<unsigned>(member), bytes.data()));
    std::int64_t stored = 0;
    std::memcpy(&stored, bytes.data(), sizeof stored);
    check(H5Tconvert(base.get(), H5T_NATIVE_INT64, 1, &stored, nullptr, H5P_DEFAULT));
    if (stored != value) return false;
  }
  return true;
}

bool is_truth_value(hid_t object, const std::string& name) {
  const Handle type(H5Aget_type(open_attribute(object, name).get()));
  return is_truth_type(type.get());
}

std::optional<std::int64_t> read_integer(hid_t object, const std::string& name) {
  const Handle attribute = open_attribute(object, name);
  const Handle type(H5Aget_type(attribute.get()));
  const H5T_class_t type_class = H5Tget_class(type.get());
  if (count(attribute) != 1) return std::nullopt;
  if (type_class == H5T_INTEGER || is_truth_type(type.get())) {
    return read_values<std::int64_t>(attribute, H5T_NATIVE_INT64).front();
  }
  if (type_class != H5T_FLOAT) return std::nullopt;
  const double value = read_values<double>(attribute, H5T_NATIVE_DOUBLE).front();
  if (!(std::abs(value) < 0x1p53) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::optional<double> read_number(hid_t object, const std::string& name) {
  const Handle attribute = open_attribute(object, name);
  const Handle type(H5Aget_type(attribute.get()));
  const H5T_class_t type_class = H5Tget_class(type.get());
  if (count(attribute) != 1) return std::nullopt;
  if (is_truth_type(type.get())) {
    return static_cast<double>(read_values<std::int64_t>(attribute, H5T_NATIVE_INT64).front());
  }
  if (type_class != H5T_INTEGER && type_class != H5T_FLOAT) return std::nullopt;
  return read_values<double>(attribute, H5T_NATIVE_DOUBLE).front();
}

std::optional<std::string> read_string(hid_t object, const std::string& name) {
  const Handle attribute = open_attribute(object, name);
  const Handle type(H5Aget_type(attribute.get()));
  if (H5Tget_class(type.get()) != H5T_STRING || count(attribute) != 1) return std::nullopt;
  return read_strings(attribute, type).front();
}

std::string attribute_text(hid_t object, const std::string& name) {
  const Handle attribute = open_attribute(object, name);
  const Handle type(H5Aget_type(attribute.get()));
  switch (H5Tget_class(type.get())) {
    case H5T_INTEGER:
      if (H5Tget_sign(type.get()) == H5T_SGN_NONE) {
        const auto values = read_values<std::uint64_t>(attribute, H5T_NATIVE_UINT64);
        return fmt::format("{}", fmt::join(values, ", "));
      }
      return fmt::format("{}",
                         fmt::join(read_values<std::int64_t>(attribute, H5T_NATIVE_INT64), ", "));
    case H5T_FLOAT:
      return fmt::format("{}", fmt::join(read_values<double>(attribute, H5T_NATIVE_DOUBLE), ", "));
    case H5T_STRING:
      return fmt::format("{}", fmt::join(read_strings(attribute, type), ", "));
    default:
      break;
  }
  return fmt::format("({} values of {} bytes)", count(attribute), H5Tget_size(type.get()));
}

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
  const Handle type(H5Tcopy(H5T_C_S1));
  check(H5Tset_size(type.get(), H5T_VARIABLE));
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  const char* text = value.c_str();
  write_scalar(object, name, type.get(), &text);
}

void write_attribute(hid_t object, const std::string& name, std::int64_t value) {
  write_scalar(object, name, H5T_NATIVE_INT64, &value);
}

void write_attribute(hid_t object, const std::string& name, double value) {
  write_scalar(object, name, H5T_NATIVE_DOUBLE, &value);
}

void write_dataset(hid_t parent, const std::string& name, const std::vector<std::uint64_t>& dims,
                   const double* values) {
  write_whole(parent, name, dims, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, values);
}

void write_dataset(hid_t parent, const std::string& name, const std::vector<std::uint64_t>& dims,
                   const std::int64_t* values) {
  write_whole(parent, name, dims, H5T_STD_I64LE, H5T_NATIVE_INT64, values);
}

void write_dataset(hid_t parent, const std::string& name, const std::vector<std::uint64_t>& dims,
                   const std::int32_t* values) {
  write_whole(parent, name, dims, H5T_STD_I32LE, H5T_NATIVE_INT32, values);
}

Handle dataset_properties() {
  Handle properties(H5Pcreate(H5P_DATASET_CREATE));
  check(H5Pset_obj_track_times(properties.get(), false));
  return properties;
}

}  // namespace kvbench::hdf5
