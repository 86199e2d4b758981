// The folder of cache files that a run writes, output.caches.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cellfiles/cache_file.hpp"
#include "cellfiles/kept_journal.hpp"
#include "core/kept_cache.hpp"

namespace kvbench {

// A KV head of a cache file, by the cell whose rows they are.
struct CacheCell {
  std::string cell_id;
  StreamId id;
  StreamShape shape;
};

struct CacheFile {
  std::string name;  // in the folder
  std::string hash;  // hash of the setting: what tells it from another of the same name
  CacheHeader header;
  std::vector<CacheCell> cells;
};

// Writes the files, each with what `read` returns for its cells, and puts them into place once all
// are written: `read` may read those that were there. A file without cells is not written. Throws
// IoError.
void write_cache_files(const std::string& folder, const std::vector<CacheFile>& files,
                       const std::function<KeptRows(const std::string& cell_id)>& read);

// While a run adds cells, FOLDER/journal holds those, and the files stay as they were. finish()
// writes those files that have new cells.
class KeptStore {
 public:
  enum class Use { kRead, kWrite };
  // Nothing needs to be there yet. The cells of a file that cannot be read do not count as there;
  // the file stays as it is.
  KeptStore(std::string folder, Use use);
  // The errors of the files that could not be read.
  const std::vector<std::string>& unreadable() const { return unreadable_; }
  ~KeptStore();
  KeptStore(const KeptStore&) = delete;
  KeptStore& operator=(const KeptStore&) = delete;

  // Opens the journal, which write() does by itself, and returns its path. Throws IoError.
  const std::string& start();
  // Adds (or replaces) what one cell kept: it survives a kill when this returns.
  void write(const std::string& cell_id, const KeptRows& kept);
  bool has(const std::string& cell_id) const;
  // Rows of a cell that it has. Throws IoError, InputError.
  KeptRows read(const std::string& cell_id) const;

  // Removes the journal, the files that it found, which cells of a run are in, and what a killed
  // finish() left under temporary names; nothing else. Throws IoError.
  void remove();

  // Writes the files that have new cells or lie elsewhere. Cells that other runs left in a file of
  // the same setting stay in it; the file of another setting, or one that could not be read, is not
  // touched: this one's name then ends in its hash, or that and a number. `files` name all cells of
  // the plan. Files that a killed finish() left go, whatever their names. `complete`: no cell is
  // missing, and the journal goes.
  void finish(const std::vector<CacheFile>& files, bool complete);

 private:
  // Place of a cell in a file.
  struct Place {
    std::string path;
    KeptHead head;

    StreamId id() const { return {head.sequence, head.layer, head.kv_head}; }
    StreamShape shape() const;  // as far as a cache file knows it
  };

  void scan();
  std::vector<std::string> unfinished() const;
  std::string free_name(const CacheFile& file) const;
  CacheFile with_earlier(CacheFile file) const;

  std::string folder_;
  std::string journal_path_;
  std::optional<KeptJournal> journal_;
  std::map<std::string, Place> in_files_;           // by cell
  std::map<std::string, std::string> settings_of_;  // by path; empty: could not be read
  std::vector<std::string> unreadable_;
  mutable std::shared_ptr<const KeptCache> opened_;  // the last that was read
};

}  // namespace kvbench
