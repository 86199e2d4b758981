#include "dump/kept_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "dump/cache_head.hpp"
#include "dump/hdf5.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

// Calls visit(location, cell id) for each head of a cache file that a run wrote.
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
        if (const auto cell = hdf5::read_string(group.get(), "cell")) visit(location, *cell);
      }
    }
  }
}

}  // namespace

struct KeptStore::Place {
  std::string path;
  std::string location;
};

void write_cache_files(const std::string& folder, const std::vector<CacheFile>& files,
                       const std::function<KeptRows(const std::string&)>& read) {
  for (const CacheFile& file : files) {
    if (file.cells.empty()) continue;
    CacheWriter writer(folder + "/" + file.name, file.header);
    for (const CacheCell& cell : file.cells) {
      writer.add(cell.id, cell.shape, read(cell.cell_id), cell.cell_id);
    }
    writer.finish();
  }
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
      each_cell(file.get(), [&](const std::string& location, const std::string& cell) {
        found[cell] = {path, location};
      });
    } catch (const hdf5::Error&) {
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
    const hdf5::Handle group = hdf5::open_group(file.get(), place.location);
    KeptRows kept = read_kept_rows(errors, group.get(), place.location);
    errors.throw_if_any();
    return kept;
  } catch (const hdf5::Error& error) {
    throw InputError(
        fmt::format("{}: cannot be read ({}); remove it and rerun", place.path, error.what()));
  }
}

void KeptStore::remove() {
  std::set<std::string> paths;
  for (const auto& [cell, place] : in_files_) paths.insert(place.path);
  if (journal_) paths.insert(journal_path_);
  journal_.reset();
  in_files_.clear();
  for (const std::string& path : paths) {
    if (std::remove(path.c_str()) != 0) throw IoError(system_error(path, "be removed"));
  }
}

void KeptStore::finish(const std::vector<CacheFile>& files, bool complete) {
  if (!journal_) return;
  std::vector<CacheFile> changed;
  for (const CacheFile& file : files) {
    const bool is_new =
        std::any_of(file.cells.begin(), file.cells.end(),
                    [&](const CacheCell& cell) { return journal_->has(cell.cell_id); });
    if (!is_new) continue;
    CacheFile there = file;
    std::erase_if(there.cells, [&](const CacheCell& cell) { return !has(cell.cell_id); });
    changed.push_back(std::move(there));
  }
  write_cache_files(folder_, changed, [&](const std::string& id) { return read(id); });
  if (!complete) return;
  journal_.reset();
  std::remove(journal_path_.c_str());
}

}  // namespace kvbench
