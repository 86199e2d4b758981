// `summary` of results.json: means of the cells per algorithm, label and parameters.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/matrix_view.hpp"
#include "json/json.hpp"
#include "results/mean_interval.hpp"
#include "results/summary_slice.hpp"

namespace kvbench {

// What the table at the end of a run needs of one entry over all layers: means over units of
// relative_l2.mean and memory.fraction.
struct SettingMeans {
  std::string algorithm;
  std::string label;
  std::string params;           // as a line of JSON
  std::optional<Index> tokens;  // of an axis of them
  std::optional<double> error;
  std::optional<double> memory_fraction;
};

// Numbers of a cell's `trivial` whose means over units stand in the summary; that z = 0 has
// relative_l2 1 needs no number.
const std::vector<std::string>& summarised_trivial_paths();

// Collects cell records one by one and gives one entry per (algorithm, label, params) over all
// layers (`layer` null) and per layer; with an axis of tokens also per number of them.
//
// In memory are a few numbers of each record; their metrics lie in a temporary file where they are
// many, and one entry per thread is summed up at a time, as many of its metrics as memory holds.
//
// Unit = (dump, sequence, layer, KV head). Per unit the mean over seeds, then the mean over units;
// `ci95` Student's t interval over the groups of units that `ci95_over` names (mean_interval.hpp),
// null with one group; `std_over_seeds` population standard deviation over seeds of the mean over
// units. A metric that is null in a cell is left out there,
// null everywhere: null. Bits depend on the order of add() alone: call it in plan order.
class Summary {
 public:
  // `by_tokens`: select.tokens is an axis, so that entries are of one number of tokens each.
  // `folder`: of the temporary file, as RecordStore's.
  explicit Summary(bool by_tokens = false, const std::string& folder = "");
  ~Summary();
  Summary(const Summary&) = delete;
  Summary& operator=(const Summary&) = delete;

  // A record of any status; skipped ones change nothing, failed ones are counted.
  void add(const Json& record);
  // A record of a whole layer, after the cells of its setting. Unit = (dump, sequence, layer).
  void add_layer(const Json& record);

  // Calls `line` with each entry as a line of JSON, in order; few of them are in memory at a time.
  void each(const std::function<void(std::string_view line)>& line) const;
  Json json() const;
  // Of the settings that have cells that are ok, in order; no intervals are computed.
  std::vector<SettingMeans> means() const;

  // Bytes that it takes: of a setting; of a record; of metrics in memory; and, while an entry is
  // made, of that.
  static double setting_bytes();
  static double record_bytes();
  static double rows_bytes(double cells, double layers);
  static double entry_bytes(double units, double seeds, double records);

 private:
  struct Entry;
  struct Job {  // one entry of the summary: all layers of a setting, or one
    const Entry* entry;
    std::optional<int> layer;
  };
  std::vector<Job> jobs() const;
  void collect(const Json& record, bool is_layer);

  bool by_tokens_;
  SummaryRows cells_;
  SummaryRows whole_layers_;
  std::vector<Entry> entries_;                    // in order of first appearance
  std::map<std::string, std::size_t> find_;       // identity -> entry
  std::vector<UnitNesting> units_;                // shared by all entries
  std::map<std::string, std::size_t> find_unit_;  // identity -> number
  std::map<std::string, Index> find_text_;        // dump and sequence -> number
};

}  // namespace kvbench
