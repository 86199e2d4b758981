#include "dump/kept_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "dump/cache_head.hpp"
#include "dump/hdf5.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

// What tells the files of two settings apart.
std::string setting_text(const CacheHeader& header) {
  return fmt::format("{}\n{}\n{}\n{}", header.method, header.params,
                     header.seed ? std::to_string(*header.seed) : "", header.dump);
}

std::string setting_of(hid_t file) {
  const hdf5::Handle root = hdf5::open_group(file, "/");
  const auto text = [&](const char* name) {
    return hdf5::has_attribute(root.get(), name) ? hdf5::attribute_text(root.get(), name) : "";
  };
  return fmt::format("{}\n{}\n{}\n{}", text("method"), text("params"), text("seed"), text("dump"));
}

// Calls visit(head, group, cell id) for each head of a cache file that a run wrote.
template <class Visit>
void each_cell(hid_t file, const Visit& visit) {
  const hdf5::Handle sequences = hdf5::open_group(file, "/sequences");
  for (const std::string& sequence : hdf5::children(sequences.get())) {
    const std::string layers_path = "/sequences/" + sequence + "/layers";
    const hdf5::Handle layers = hdf5::open_group(file, layers_path);
    for (const std::string& layer : hdf5::children(layers.get())) {
      const std::string heads_path = layers_path + "/" + layer + "/heads";
      const hdf5::Handle heads = hdf5::open_group(file, heads_path);
      for (const std::string& head : hdf5::children(heads.get())) {
        const std::string location = heads_path + "/" + head;
        const hdf5::Handle group = hdf5::open_group(file, location);
        if (!hdf5::has_attribute(group.get(), "cell")) continue;
        const auto cell = hdf5::read_string(group.get(), "cell");
        if (cell) visit(StreamId{sequence, std::stoi(layer), std::stoi(head)}, group, *cell);
      }
    }
  }
}

StreamShape shape_of(hid_t group) {
  StreamShape shape;
  shape.tokens = hdf5::read_integer(group, "tokens").value_or(0);
  const auto length = [&](const char* name) -> Index {
    if (!hdf5::has_link(group, name)) return 0;
    const hdf5::Handle dataset = hdf5::open_dataset(group, name);
    const hdf5::Handle space(H5Dget_space(dataset.get()));
    const auto dims = hdf5::extent(space.get());
    return dims.size() == 2 ? static_cast<Index>(dims[1]) : 0;
  };
  shape.d = length("key");
  shape.dv = length("value");
  return shape;
}

}  // namespace

struct KeptStore::Place {
  std::string path;
  StreamId id;
  StreamShape shape;  // as far as a cache file knows it
};

void write_cache_files(const std::string& folder, const std::vector<CacheFile>& files,
                       const std::function<KeptRows(const std::string&)>& read) {
  std::vector<std::unique_ptr<CacheWriter>> written;
  for (const CacheFile& file : files) {
    if (file.cells.empty()) continue;
    CacheWriter& writer =
        *written.emplace_back(std::make_unique<CacheWriter>(folder + "/" + file.name, file.header));
    for (const CacheCell& cell : file.cells) {
      writer.add(cell.id, cell.shape, read(cell.cell_id), cell.cell_id);
    }
    writer.close();
  }
  for (const auto& writer : written) writer->finish();
}

KeptStore::KeptStore(std::string folder, Use use)
    : folder_(std::move(folder)), journal_path_(folder_ + "/journal") {
  if (file_exists(journal_path_)) {
    journal_.emplace(journal_path_,
                     use == Use::kWrite ? AppendLog::Access::kWrite : AppendLog::Access::kRead);
  }
  scan();
}

KeptStore::~KeptStore() = default;

void KeptStore::scan() {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder_, absent)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".h5") continue;
    const hdf5::Session session;
    std::map<std::string, Place> found;
    try {
      const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kReadUnlocked);
      settings_of_[path] = setting_of(file.get());
      each_cell(file.get(),
                [&](const StreamId& id, const hdf5::Handle& group, const std::string& cell) {
                  found[cell] = {path, id, shape_of(group.get())};
                });
    } catch (const hdf5::Error&) {
      continue;
    } catch (const std::logic_error&) {  // a layer or head that is not a number
      continue;
    }
    in_files_.merge(found);
  }
}

const std::string& KeptStore::start() {
  if (!journal_) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw IoError(folder_ + ": cannot create the folder: " + error.message());
    journal_.emplace(journal_path_, AppendLog::Access::kWrite);
  }
  return journal_path_;
}

void KeptStore::write(const std::string& cell_id, const KeptRows& kept) {
  start();
  journal_->append(cell_id, kept);
}

bool KeptStore::has(const std::string& cell_id) const {
  return (journal_ && journal_->has(cell_id)) || in_files_.count(cell_id) != 0;
}

KeptRows KeptStore::read(const std::string& cell_id) const {
  if (journal_ && journal_->has(cell_id)) return journal_->read(cell_id);
  const Place& place = in_files_.at(cell_id);
  const hdf5::Session session;
  ErrorList errors(place.path);
  try {
    const hdf5::Handle file = hdf5::open_file(place.path, hdf5::Access::kReadUnlocked);
    const std::string location = cache_head_path(place.id);
    const hdf5::Handle group = hdf5::open_group(file.get(), location);
    if (hdf5::read_string(group.get(), "cell") != cell_id) {
      errors.add(location, "was replaced while it was being read; rerun");
    }
    KeptRows kept = read_kept_rows(errors, group.get(), location);
    errors.throw_if_any();
    return kept;
  } catch (const hdf5::Error& error) {
    throw InputError(
        fmt::format("{}: cannot be read ({}); remove it and rerun", place.path, error.what()));
  }
}

void KeptStore::remove() {
  std::set<std::string> paths;
  for (const auto& [cell, place] : in_files_) {
    paths.insert(place.path);
    if (file_exists(place.path + ".tmp")) paths.insert(place.path + ".tmp");
  }
  if (journal_) paths.insert(journal_path_);
  journal_.reset();
  in_files_.clear();
  for (const std::string& path : paths) {
    if (std::remove(path.c_str()) != 0) throw IoError(system_error(path, "be removed"));
  }
}

// The file with the cells of it that are there, and what other runs left in the file of this name;
// under another name if that is of another setting.
CacheFile KeptStore::with_earlier(CacheFile file) const {
  std::erase_if(file.cells, [&](const CacheCell& cell) { return !has(cell.cell_id); });
  const auto there = settings_of_.find(folder_ + "/" + file.name);
  if (there == settings_of_.end()) return file;
  if (there->second != setting_text(file.header)) {
    if (!file.name.ends_with(file.hash + ".h5")) {
      file.name.insert(file.name.size() - std::string(".h5").size(), "-" + file.hash);
    }
    return file;
  }
  const auto of_head = [&](const StreamId& id) {
    return std::any_of(file.cells.begin(), file.cells.end(), [&](const CacheCell& cell) {
      return cell.id.sequence == id.sequence && cell.id.layer == id.layer &&
             cell.id.kv_head == id.kv_head;
    });
  };
  std::vector<CacheCell> earlier;
  for (const auto& [cell, place] : in_files_) {
    if (place.path == there->first && !of_head(place.id)) {
      earlier.push_back({cell, place.id, place.shape});
    }
  }
  file.cells.insert(file.cells.end(), earlier.begin(), earlier.end());
  return file;
}

void KeptStore::finish(const std::vector<CacheFile>& files, bool complete) {
  if (!journal_) return;
  std::vector<CacheFile> changed;
  for (const CacheFile& file : files) {
    const CacheFile now = with_earlier(file);
    const std::string path = folder_ + "/" + now.name;
    const bool is_new = std::any_of(now.cells.begin(), now.cells.end(), [&](const CacheCell& cell) {
      return journal_->has(cell.cell_id) || in_files_.at(cell.cell_id).path != path;
    });
    if (is_new) changed.push_back(now);
  }
  write_cache_files(folder_, changed, [&](const std::string& id) { return read(id); });
  if (!complete) return;
  journal_.reset();
  std::remove(journal_path_.c_str());
}

}  // namespace kvbench
