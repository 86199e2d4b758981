#include "results/journal_scan.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;

Json parse_or_discarded(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) return Json(Json::value_t::discarded);
  return Json::parse(line.begin(), line.end(), nullptr, false);
}

// Calls `line(text, offset)` for each whole line; returns the bytes that whole lines take.
std::int64_t for_each_line(int descriptor, const std::string& path,
                           const std::function<void(std::string_view, std::int64_t)>& line) {
  std::string buffer;
  std::int64_t consumed = 0;
  std::size_t searched = 0;
  for (;;) {
    const std::size_t held = buffer.size();
    buffer.resize(held + kChunk);
    const ssize_t got = ::pread(descriptor, buffer.data() + held, kChunk,
                                consumed + static_cast<std::int64_t>(held));
    if (got < 0 && errno == EINTR) {
      buffer.resize(held);
      continue;
    }
    if (got < 0) throw InputError(system_fault(path, "read"));
    buffer.resize(held + static_cast<std::size_t>(got));
    if (got == 0) return consumed;
    std::size_t start = 0;
    for (std::size_t end = buffer.find('\n', searched); end != std::string::npos;
         end = buffer.find('\n', start)) {
      line(std::string_view(buffer).substr(start, end - start),
           consumed + static_cast<std::int64_t>(start));
      start = end + 1;
    }
    buffer.erase(0, start);
    consumed += static_cast<std::int64_t>(start);
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

JournalScan scan_journal(int descriptor, const std::string& path, const std::string& remedy,
                         const std::function<void(Json&&, JournalLine)>& record,
                         const std::function<void(const Json&)>& header) {
  struct stat status = {};
  if (::fstat(descriptor, &status) == 0 && !S_ISREG(status.st_mode)) {
    throw InputError(path + ": is not a regular file; " + remedy);
  }
  JournalScan scan;
  scan.whole_size =
      for_each_line(descriptor, path, [&](std::string_view text, std::int64_t offset) {
        Json parsed = parse_or_discarded(text);
        if (!scan.has_header) {
          check_header(parsed, path, remedy);
          scan.has_header = true;
          scan.header_size = static_cast<std::int64_t>(text.size()) + 1;
          if (const auto runs = parsed.find("provenance");
              runs != parsed.end() && runs->is_array()) {
            for (const Json& run : *runs) scan.provenance.push_back(run);
          }
          scan.header = std::move(parsed);
          if (header) header(scan.header);
          return;
        }
        if (!is_record(parsed)) {
          ++scan.damaged;
          return;
        }
        // The first line of a later run carries that run's provenance.
        if (const auto run = parsed.find("run"); run != parsed.end()) {
          scan.provenance.push_back(*run);
          parsed.erase("run");
        }
        record(std::move(parsed), {offset, static_cast<std::int64_t>(text.size())});
      });
  return scan;
}

std::string read_at(int descriptor, JournalLine part, const std::string& path) {
  std::string text(static_cast<std::size_t>(part.size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::pread(descriptor, text.data() + done, text.size() - done,
                                part.offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) throw IoError(path + ": cannot read: it became shorter");
    if (got < 0) throw IoError(system_fault(path, "read"));
    done += static_cast<std::size_t>(got);
  }
  return text;
}

Json read_record(int descriptor, JournalLine line, const std::string& path) {
  Json record = Json::parse(read_at(descriptor, line, path));
  record.erase("run");
  return record;
}

}  // namespace kvbench
