#include "cellfiles/kept_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "system/error.hpp"
#include "system/file.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

}  // namespace

StreamShape KeptStore::Place::shape() const {
  StreamShape shape;
  shape.tokens = head.tokens.value_or(0);
  shape.d = head.d;
  shape.dv = head.dv;
  return shape;
}

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
    if (entry.path().extension() != ".h5") continue;
    try {
      const auto cache = open_cache(entry.path(), {}, CacheRows::kUnread);
      settings_of_[cache->path] = cache->setting;
      for (const KeptHead& head : cache->heads) {
        if (!head.cell.empty()) in_files_.emplace(head.cell, Place{cache->path, head});
      }
    } catch (const InputError& error) {
      settings_of_[entry.path()] = "";  // no setting: not written over
      unreadable_.insert(unreadable_.end(), error.messages().begin(), error.messages().end());
    }
  }
}

// Files that a CacheWriter began and a kill kept from their names.
std::vector<std::string> KeptStore::unfinished() const {
  std::vector<std::string> paths;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder_, absent)) {
    if (finished_name(entry.path().native()).ends_with(".h5")) paths.push_back(entry.path());
  }
  return paths;
}

const std::string& KeptStore::start() {
  if (!journal_) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw IoError(write_error(folder_, "create the folder", error.value()));
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
  if (!opened_ || opened_->path != place.path) {
    opened_ = open_cache(place.path, {}, CacheRows::kUnread);
  }
  const StreamId id = place.id();
  const KeptHead* head = opened_->find(id);
  if (head == nullptr || head->cell != cell_id) {
    throw InputError(place.path + ": was replaced while it was being read; rerun");
  }
  try {
    return opened_->read(id);
  } catch (const CellError& error) {
    throw InputError(error.what());
  }
}

void KeptStore::remove() {
  std::set<std::string> paths;
  for (const auto& [cell, place] : in_files_) paths.insert(place.path);
  for (const std::string& path : unfinished()) paths.insert(path);
  if (journal_) paths.insert(journal_path_);
  journal_.reset();
  in_files_.clear();
  opened_.reset();
  for (const std::string& path : paths) {
    if (std::remove(path.c_str()) != 0) throw IoError(system_error(path, "be removed"));
  }
}

// The file's name, or if that is taken by another setting or cannot be read, the first that is not:
// NAME-HASH, NAME-HASH-2, ..
std::string KeptStore::free_name(const CacheFile& file) const {
  const std::string end = ".h5";
  std::string stem = file.name.substr(0, file.name.size() - end.size());
  if (!stem.ends_with(file.hash)) stem += "-" + file.hash;
  std::string name = file.name;
  for (int number = stem + end == name ? 2 : 1;; ++number) {
    const auto there = settings_of_.find(folder_ + "/" + name);
    if (there == settings_of_.end() || there->second == file.header.setting()) return name;
    name = number > 1 ? fmt::format("{}-{}{}", stem, number, end) : stem + end;
  }
}

// The file with the cells of it that are there, and what other runs left in it.
CacheFile KeptStore::with_earlier(CacheFile file) const {
  std::erase_if(file.cells, [&](const CacheCell& cell) { return !has(cell.cell_id); });
  file.name = free_name(file);
  const auto there = settings_of_.find(folder_ + "/" + file.name);
  if (there == settings_of_.end()) return file;
  const auto of_head = [&](const StreamId& id) {
    return std::any_of(file.cells.begin(), file.cells.end(), [&](const CacheCell& cell) {
      return cell.id.sequence == id.sequence && cell.id.layer == id.layer &&
             cell.id.kv_head == id.kv_head;
    });
  };
  std::vector<CacheCell> earlier;
  for (const auto& [cell, place] : in_files_) {
    if (place.path == there->first && !of_head(place.id())) {
      earlier.push_back({cell, place.id(), place.shape()});
    }
  }
  file.cells.insert(file.cells.end(), earlier.begin(), earlier.end());
  return file;
}

void KeptStore::finish(const std::vector<CacheFile>& files, bool complete) {
  if (!journal_) return;
  for (const std::string& path : unfinished()) std::remove(path.c_str());
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
