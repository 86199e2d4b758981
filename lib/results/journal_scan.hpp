// Reading journal.jsonl: a header line, then one cell record per line. The last record of an id
// holds; bytes after the last line end are a torn line and count for nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "results/cell_records.hpp"
#include "system/append_log.hpp"

namespace kvbench {

inline constexpr const char* kJournalKind = "kvbench.journal";
inline constexpr const char* kJournalSchema = "1.1.0";

// The place of a record in the file.
struct JournalLine {
  std::int64_t offset = 0;
  std::int64_t size = 0;  // without the line end
};

struct JournalScan {
  bool has_header = false;       // false: not one whole line (a new or torn journal)
  Json header;                   // kind, schema_version, name, plan, shard, config, dumps, ..;
                                 // null where it was handed over
  std::vector<Json> provenance;  // provenance of every run that wrote to it, in order
  std::int64_t header_size = 0;  // bytes of the header line, its end included
  std::int64_t whole_size = 0;   // bytes up to the end of the last whole line
  std::int64_t damaged = 0;      // whole lines that are not a record (a crash of the machine)
};

// Reads all of `log` from its beginning and calls `record(record, line)` for each whole
// record in order. Throws InputError when the header is whole but is not a kvbench journal's of a
// known version, or the file is not a regular one; `path` is for messages, `remedy` ends those.
// `take_header`, where there is one, is handed the header before any record.
JournalScan scan_journal(const AppendLog& log, const std::string& path, const std::string& remedy,
                         const std::function<void(Json&&, JournalLine)>& record,
                         const std::function<void(Json&&)>& take_header = {});

// The record of a line that scan_journal named, as it was appended. Throws IoError if the file has
// changed since.
StoredRecord read_record(const AppendLog& log, JournalLine line);

}  // namespace kvbench
