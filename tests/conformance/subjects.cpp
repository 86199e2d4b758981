// Registry and rows together, and which cases of a test ran.
#include <doctest/doctest.h>

#include <algorithm>

#include "algorithms/registry.hpp"
#include "conformance/points.hpp"
#include "support/algorithm_named.hpp"

namespace kvbench::test {
namespace {

void set_values(Given& given, const Given& values) {
  for (const auto& [key, other] : values) {
    const auto place = std::find_if(given.begin(), given.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (place == given.end()) {
      given.emplace_back(key, other);
    } else {
      place->second = other;
    }
  }
}

}  // namespace

const std::vector<Subject>& subjects() {
  static const std::vector<Conformance> rows = [] {
    std::vector<Conformance> out;
    for (const AlgorithmDescription& algorithm : all_algorithms()) {
      Conformance row = general_row(algorithm);
      for (const Conformance& by_hand : conformance_table()) {
        if (by_hand.id != algorithm.id) continue;
        for (Point& point : row.points) set_values(point.given, by_hand.general_values);
        row.points.insert(row.points.begin(), by_hand.points.begin(), by_hand.points.end());
        if (by_hand.exact_points) row.exact_points = by_hand.exact_points;
        if (by_hand.resolved) row.resolved = by_hand.resolved;
        row.bookkeeping = by_hand.bookkeeping;
        row.looks_up = by_hand.looks_up;
        row.computes_weights = by_hand.computes_weights;
      }
      out.push_back(std::move(row));
    }
    return out;
  }();
  static const std::vector<Subject> all = [] {
    std::vector<Subject> out;
    for (const Conformance& row : rows) out.push_back({&algorithm_named(row.id), &row});
    return out;
  }();
  return all;
}

std::string describe(const std::string& id, const Given& given) {
  std::string out = id;
  for (const auto& [name, value] : given) {
    out += ' ';
    out += name;
    out += '=';
    out += to_string(value);
  }
  return out;
}

bool Cases::runs(const Subject& subject, const Given& given, const Params& params,
                 const StreamShape& shape, Index prompt) {
  asked_.insert(subject.row->id);
  Index& ran = ran_[describe(subject.row->id, given)];
  if (reason_to_skip(*subject.algorithm, params, shape, prompt)) return false;
  ++ran;
  return true;
}

void Cases::check_all_ran(const std::set<std::string>& not_asked) const {
  for (const auto& [point, ran] : ran_) {
    CAPTURE(point);
    CHECK(ran > 0);
  }
  for (const Subject& subject : subjects()) {
    CAPTURE(subject.row->id);
    CHECK(asked_.count(subject.row->id) != not_asked.count(subject.row->id));
  }
}

}  // namespace kvbench::test
