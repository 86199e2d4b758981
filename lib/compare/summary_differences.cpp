#include "compare/summary_differences.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string_view>

#include "results/cell_field.hpp"
#include "results/read_results.hpp"
#include "results/summary.hpp"
#include "system/error.hpp"
#include "system/record_store.hpp"

namespace kvbench {
namespace {

Json identity_of(const Json& entry) {
  Json identity;
  for (const char* name : {"algorithm", "label", "params", "storage", "tokens", "layer"}) {
    if (entry.is_object() && entry.contains(name)) identity[name] = entry[name];
  }
  return identity;
}

// The entries of a file, by identity.
class RecordedSummary {
 public:
  void add(const Json& entry) {
    by_tokens_ = by_tokens_ || (entry.is_object() && entry.contains("tokens"));
    find_.try_emplace(to_line(identity_of(entry)), entries_.size());
    entries_.add(to_line(entry));
  }

  bool by_tokens() const { return by_tokens_; }

  // The entry of this identity, which is taken away; null without one.
  Json take(const Json& identity) {
    const auto found = find_.find(to_line(identity));
    if (found == find_.end()) return nullptr;
    RecordStore::Reader reader(entries_);
    Json entry = parse_line(reader.at(found->second));
    find_.erase(found);
    return entry;
  }

  // Identities of entries that nobody took.
  std::vector<Json> left() const {
    std::vector<Json> all;
    for (const auto& [identity, place] : find_) all.push_back(parse_line(identity));
    return all;
  }

 private:
  bool by_tokens_ = false;
  RecordStore entries_;
  std::map<std::string, std::size_t> find_;
};

void require_seed(const Json& record) {
  const Json seed = record.at("key").value("seed", Json());
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint32_t>::max();
  if (seed.is_null() || (seed.is_number_unsigned() && seed.get<std::uint64_t>() <= kLargest))
    return;
  throw InputError("its seed must be null or an integer from 0 to 4294967295, got " +
                   to_line(seed));
}

}  // namespace

SummaryCheck summary_differences(const std::string& path, const NumberTolerance& tolerance) {
  SummaryCheck check;
  RecordedSummary recorded;
  read_results(path, {.summary = [&](Json&& entry) { recorded.add(entry); }});

  Summary summary(recorded.by_tokens());
  const auto add_to = [&](const char* member, auto add) {
    return [&summary, &path, member, add, index = std::size_t{0}](Json&& record) mutable {
      require_cell(record, index, path, member);
      const auto refuse = [&](const char* what) {
        throw InputError(fmt::format(
            "{}: /{}/{}: no summary can be made of it: {}; verify a file as `kvbench run` or "
            "`kvbench merge` wrote it",
            path, member, index, what));
      };
      try {
        require_seed(record);
        (summary.*add)(record);
      } catch (const Json::exception& error) {
        refuse(error.what());
      } catch (const InputError& error) {
        refuse(error.what());
      }
      ++index;
    };
  };
  read_results(path,
               {.cell = add_to("cells", &Summary::add),
                .layer = [&, add = add_to("layers", &Summary::add_layer)](Json&& record) mutable {
                  ++check.layer_records;
                  add(std::move(record));
                }});

  summary.each([&](std::string_view line) {
    ++check.entries;
    const Json recomputed = parse_line(line);
    const Json identity = identity_of(recomputed);
    const Json entry = recorded.take(identity);
    if (entry.is_null()) {
      check.differences.push_back({identity, {"summary", nullptr, "an entry"}});
      return;
    }
    const auto found =
        record_differences({{"summary", entry}}, {{"summary", recomputed}}, tolerance);
    check.equal += found.empty() ? 1 : 0;
    for (const RecordDifference& what : found) check.differences.push_back({identity, what});
  });
  for (Json& identity : recorded.left()) {
    ++check.entries;
    check.differences.push_back({std::move(identity), {"summary", "an entry", nullptr}});
  }
  return check;
}

}  // namespace kvbench
