// Cache files: what a method kept of each KV head, in HDF5 (format: data/FORMAT.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/kept_cache.hpp"
#include "dump/dump.hpp"

namespace kvbench {

// Whether a file says that it is one (attribute format). Throws InputError if it cannot be read.
bool is_cache_file(const std::string& path);

enum class CacheRows {
  kChecked,  // all are read once
  kUnread,   // structure alone: no fingerprint, and nothing is known that only the rows say
};

// Opens a cache file and checks it. Its `read` reads one head, throws CellError where it cannot,
// and may be called from several threads, one of which waits for the other. Only what lies in the
// file itself is read. Throws one InputError with every error, each "FILE: /place: what; remedy".
std::shared_ptr<const KeptCache> open_cache(const std::string& path,
                                            const DumpOptions& options = {},
                                            CacheRows rows = CacheRows::kChecked);

struct CacheHeader {
  std::string method;
  std::string producer;  // empty: none
  std::string params;    // JSON text; empty: none
  std::optional<std::uint32_t> seed;
  std::string dump;  // fingerprint of the dump that the rows are of; empty: not said

  std::string setting() const;  // as KeptCache::setting
};

// Builds a cache file under a temporary name next to `path` and puts it into place when finished
// (system/file.hpp). Throws IoError if the place cannot be written.
class CacheWriter {
 public:
  CacheWriter(const std::string& path, const CacheHeader& header);
  ~CacheWriter();  // removes what was not finished
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;

  // One KV head, each once. `shape`: of the stream that the rows were kept of; `cell_id`: of the
  // cell that kept them, if one did.
  void add(const StreamId& id, const StreamShape& shape, const KeptRows& kept,
           const std::string& cell_id = "");
  // The file is whole and on disk under its temporary name; the same with it put into place.
  void close();
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbench
