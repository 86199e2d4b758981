#include "results/journal_scan.hpp"

#include <span>
#include <string_view>
#include <utility>

#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;

constexpr const char* kSpace = " \t\r";

Json object_or_discarded(std::string_view line) {
  Json discarded(Json::value_t::discarded);
  const std::size_t first = line.find_first_not_of(kSpace);
  if (first == std::string_view::npos || line[first] != '{' ||
      line[line.find_last_not_of(kSpace)] != '}' || line.find('\0') != std::string_view::npos) {
    return discarded;
  }
  return parse_or_discarded(line);
}

// Calls `line(text, offset)` for each whole line; returns the bytes that whole lines take.
std::int64_t for_each_line(const AppendLog& log,
                           const std::function<void(std::string_view, std::int64_t)>& line) {
  std::string buffer;
  std::int64_t consumed = 0;
  std::size_t searched = 0;
  for (;;) {
    const std::size_t before = buffer.size();
    buffer.resize(before + kChunk);
    const std::size_t got = log.read_some(consumed + static_cast<std::int64_t>(before),
                                          std::span(buffer).subspan(before));
    buffer.resize(before + got);
    if (got == 0) return consumed;
    std::size_t start = 0;
    for (std::size_t end = buffer.find('\n', searched); end != std::string::npos;
         end = buffer.find('\n', start)) {
      const std::string_view text = std::string_view(buffer).substr(start, end - start);
      line(text, consumed);
      consumed += static_cast<std::int64_t>(text.size()) + 1;
      start = end + 1;
    }
    buffer.erase(0, start);
    searched = buffer.size();
  }
}

void check_header(const Json& header, const std::string& path, const std::string& remedy) {
  if (!header.is_object() || header.value("kind", Json()) != kJournalKind) {
    throw InputError(path + ": is not a kvbench journal; " + remedy);
  }
  const Json version = header.value("schema_version", Json("unknown"));
  if (!version.is_string() ||
      version.get_ref<const std::string&>().substr(0, 2) != std::string(kJournalSchema, 2)) {
    throw InputError(path + ": was written by another version of kvbench (schema " +
                     (version.is_string() ? version.get<std::string>() : to_line(version)) + "); " +
                     remedy);
  }
}

bool is_record(const Json& record) {
  return record.is_object() && record.contains("id") && record["id"].is_string() &&
         record.contains("status") && record["status"].is_string();
}

}  // namespace

JournalScan scan_journal(const AppendLog& log, const std::string& path, const std::string& remedy,
                         const std::function<void(Json&&, JournalLine)>& record,
                         const std::function<void(Json&&)>& take_header) {
  if (!log.is_regular()) throw InputError(path + ": is not a regular file; " + remedy);
  JournalScan scan;
  scan.whole_size = for_each_line(log, [&](std::string_view text, std::int64_t offset) {
    Json parsed = object_or_discarded(text);
    if (!scan.has_header) {
      check_header(parsed, path, remedy);
      scan.has_header = true;
      scan.header_size = static_cast<std::int64_t>(text.size()) + 1;
      if (const auto first = parsed.find("provenance");
          first != parsed.end() && first->is_array()) {
        scan.provenance.assign(first->begin(), first->end());
      }
      if (take_header) {
        take_header(std::move(parsed));
      } else {
        scan.header = std::move(parsed);
      }
      return;
    }
    if (!is_record(parsed)) {
      ++scan.damaged;
      return;
    }
    // The first line of a later run carries that run's provenance.
    if (const auto run = parsed.find("run"); run != parsed.end()) {
      scan.provenance.push_back(std::move(*run));
      parsed.erase("run");
    }
    record(std::move(parsed), {offset, static_cast<std::int64_t>(text.size())});
  });
  return scan;
}

StoredRecord read_record(const AppendLog& log, JournalLine line) {
  std::string text = log.read(line.offset, line.size);
  Json record = parse_or_discarded(text);
  if (!record.is_object()) {
    throw IoError(log.path() +
                  ": was changed by another program while it was being read; keep other programs "
                  "from writing to this folder");
  }
  if (record.erase("run") > 0) text.clear();
  return {std::move(record), std::move(text)};
}

}  // namespace kvbench
