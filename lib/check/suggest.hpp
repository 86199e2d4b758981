// A bounds file to begin with, from two runs of one sweep: `kvbench check --suggest`.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

// Collects the cells of two results and proposes, per setting (algorithm, label, parameters,
// storage) and metric, a bound of kind `limit`:
//
//   seeded cells       the largest value + 4 times the largest standard deviation over seeds of a
//                      unit (dump, sequence, layer, KV head), of 3 seeds or more;
//   others             the largest value times 1 + max(1e-6, 10 times the largest relative
//                      difference between the two runs of one cell);
//
// and 1e-12, rounded up to three digits. A limit is what these runs reached, with room for noise;
// it promises nothing about other dumps.
class BoundsSuggestion {
 public:
  // `metrics`: paths of numbers in a cell.
  explicit BoundsSuggestion(std::vector<std::string> metrics);

  // A record of any status; those that are not ok are left out. `path`: of its file, for messages;
  // `index`: its place there. Throws InputError where it is not a record.
  void add(const Json& cell, std::size_t index, const std::string& path);

  // The bounds file, bounds in the order in which settings came.
  Json bounds() const;
  // Why settings have no bound, a line each.
  std::vector<std::string> left_out() const;

 private:
  struct Moments {  // moments of one unit's seeds
    double count = 0.0;
    double mean = 0.0;
    double squares = 0.0;  // sum of squared differences from the mean
  };
  struct Numbers {  // numbers of one metric in one setting
    double largest = 0.0;
    double largest_difference = 0.0;  // relative, between two runs of one cell
    bool is_null = false;             // in a cell
    std::map<std::string, Moments> units;
  };
  struct Setting {
    std::string name;
    Json where;
    std::string without_storage;  // `where`, as text
    bool has_storage = false;
    bool is_seeded = false;
    std::vector<Numbers> numbers;                      // as metrics_
    std::map<std::string, std::vector<double>> first;  // values by portable key
  };
  struct Verdict {
    double limit = 0.0;
    std::string trouble;  // why there is none
  };

  Setting& setting_of(const Json& cell);
  Verdict limit_of(const Setting& setting, std::size_t metric) const;
  Verdict own_limit(const Setting& setting, std::size_t metric) const;

  std::vector<std::string> metrics_;
  std::vector<Json::json_pointer> places_;
  std::vector<Setting> settings_;
  std::map<std::string, std::size_t> find_;
};

}  // namespace kvbench
