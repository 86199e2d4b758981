#include "dump/small_dump.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "system/error.hpp"

using namespace kvbench;

TemporaryFolder::TemporaryFolder() {
  static std::atomic<int> count{0};
  path_ = std::filesystem::temp_directory_path() /
          ("kvbench-test-dump-" + std::to_string(getpid()) + "-" + std::to_string(count++));
  std::filesystem::create_directories(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

LayerLayout small_layout() {
  LayerLayout layout;
  layout.query_heads = 4;
  layout.kv_heads = 2;
  layout.tokens = 12;
  layout.query_rows = 7;
  layout.d = 4;
  layout.dv = 6;
  layout.out_rows = 3;
  layout.scale = 0.5;
  layout.window = 8;
  layout.softcap = 30.0;
  return layout;
}

double planted(const std::string& tensor, Index head, Index row, Index column) {
  // Seven bits of mantissa and a small exponent: exact in all types, bfloat16 included.
  const Index mixed = (head * 37 + row * 11 + column * 5 + static_cast<Index>(tensor[0])) % 128;
  const double sign = (row + column) % 2 == 0 ? 1.0 : -1.0;
  return sign * static_cast<double>(128 + mixed) / 64.0;
}

void write_planted(DumpWriter& writer, const LayerLayout& layout) {
  const auto write = [&](const std::string& tensor, Index heads, Index rows, Index columns) {
    for (Index h = 0; h < heads; ++h) {
      std::vector<double> values;
      for (Index i = 0; i < rows; ++i) {
        for (Index c = 0; c < columns; ++c) values.push_back(planted(tensor, h, i, c));
      }
      writer.write_head(tensor, h, values);
    }
  };
  write("q", layout.query_heads, layout.query_rows, layout.d);
  write("k", layout.kv_heads, layout.tokens, layout.d);
  write("v", layout.kv_heads, layout.tokens, layout.dv);
  if (layout.out_rows > 0) write("out", layout.query_heads, layout.out_rows, layout.dv);
}

void write_small_dump(const std::string& path, const StorageOptions& storage) {
  DumpWriter writer(path, {"small", "test", 4}, storage);
  RopeData rope;
  rope.inv_freq = {1.0, 0.01};
  writer.write_rope(rope);
  std::vector<std::int32_t> ids(12);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i);
  writer.add_sequence("text", 5, "squares", ids);
  for (const int layer : {3, 1}) {
    writer.add_layer(layer, small_layout());
    write_planted(writer, small_layout());
  }
  writer.finish();
}

namespace {

hdf5::Handle bfloat16_float() {
  hdf5::Handle type(H5Tcopy(H5T_IEEE_F32LE));
  hdf5::check(H5Tset_fields(type.get(), 15, 7, 8, 0, 7));
  hdf5::check(H5Tset_size(type.get(), 2));
  hdf5::check(H5Tset_ebias(type.get(), 127));
  return type;
}

// Writes a dataset anew, with the same elements.
void store_otherwise(hid_t file, const std::string& path, const OtherStorage& storage) {
  const hdf5::Handle old(H5Dopen2(file, path.c_str(), H5P_DEFAULT));
  const hdf5::Handle space(H5Dget_space(old.get()));
  hdf5::Handle type(H5Dget_type(old.get()));
  const bool is_bfloat16 = hdf5::has_attribute(old.get(), "dtype");
  std::vector<char> bytes(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())) *
                          H5Tget_size(type.get()));
  hdf5::check(H5Dread(old.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()));
  if (is_bfloat16 && storage.bfloat16_as_float) type = bfloat16_float();
  const hdf5::Handle stored(H5Tcopy(type.get()));
  if (storage.big_endian) hdf5::check(H5Tset_order(stored.get(), H5T_ORDER_BE));
  const hdf5::Handle properties(H5Dget_create_plist(old.get()));
  if (H5Pget_layout(properties.get()) == H5D_CHUNKED) {
    hsize_t chunk[3];
    hdf5::check(H5Pget_chunk(properties.get(), 3, chunk));
    chunk[0] = std::min<hsize_t>(hdf5::extent(space.get()).at(0), storage.chunk_heads);
    hdf5::check(H5Pset_chunk(properties.get(), 3, chunk));
  }
  remove_link(file, path);
  const hdf5::Handle fresh(H5Dcreate2(file, path.c_str(), stored.get(), space.get(), H5P_DEFAULT,
                                      properties.get(), H5P_DEFAULT));
  hdf5::check(H5Dwrite(fresh.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()));
  if (is_bfloat16 && !storage.bfloat16_as_float) {
    hdf5::write_attribute(fresh.get(), "dtype", std::string("bfloat16"));
  }
}

}  // namespace

void write_small_dump(const std::string& path, const OtherStorage& storage) {
  write_small_dump(path, storage.storage);
  edit(path, [&](hid_t file) {
    for (const char* layer : {"1", "3"}) {
      for (const char* tensor : {"q", "k", "v", "out"}) {
        store_otherwise(file, std::string("/sequences/text/layers/") + layer + "/" + tensor,
                        storage);
      }
    }
  });
}

void edit(const std::string& path, const std::function<void(hid_t file)>& change) {
  const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kReadWrite);
  change(file.get());
}

void remove_attribute(hid_t file, const std::string& object, const std::string& name) {
  const hdf5::Handle opened(H5Oopen(file, object.c_str(), H5P_DEFAULT));
  hdf5::check(H5Adelete(opened.get(), name.c_str()));
}

void remove_link(hid_t file, const std::string& path) {
  hdf5::check(H5Ldelete(file, path.c_str(), H5P_DEFAULT));
}

void replace_dataset(hid_t file, const std::string& path, const std::vector<hsize_t>& dims,
                     hid_t type) {
  if (H5Lexists(file, path.c_str(), H5P_DEFAULT) > 0) remove_link(file, path);
  const hdf5::Handle space(
      dims.empty() ? H5Screate(H5S_SCALAR)
                   : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr));
  const hdf5::Handle properties = hdf5::dataset_properties();
  hdf5::check(H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY));
  const hdf5::Handle dataset(H5Dcreate2(file, path.c_str(), type, space.get(), H5P_DEFAULT,
                                        properties.get(), H5P_DEFAULT));
}

void set_element(hid_t file, const std::string& path, const std::vector<hsize_t>& at,
                 double value) {
  const hdf5::Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT));
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  hdf5::check(H5Sselect_elements(space.get(), H5S_SELECT_SET, 1, at.data()));
  const hsize_t one = 1;
  const hdf5::Handle memory(H5Screate_simple(1, &one, nullptr));
  hdf5::check(
      H5Dwrite(dataset.get(), H5T_NATIVE_DOUBLE, memory.get(), space.get(), H5P_DEFAULT, &value));
}

std::vector<std::string> errors_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.messages();
  } catch (const IoError& error) {
    return {error.what()};
  }
  return {};
}

bool says(const std::vector<std::string>& messages, const std::vector<std::string>& words) {
  return std::any_of(messages.begin(), messages.end(), [&](const std::string& message) {
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return message.find(word) != std::string::npos;
    });
  });
}
