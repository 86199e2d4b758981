// Bounds on single numbers: limit, failure rate, range, trivial.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check/binomial.hpp"
#include "check/check_rules.hpp"
#include "results/cell_metric.hpp"
#include "system/key_index.hpp"

namespace kvbench {
namespace {

// The seeds of one (dump, sequence, layer, KV head, algorithm, params, ..): everything of the key
// but seed and device.
struct Group {
  std::uint32_t first = 0;  // its place
  Index seeds = 0;
  Index failures = 0;
  double largest = 0.0;  // value over limit is compared by difference, so that 0 may be a limit
  double limit = 0.0;
};

std::string group_of(const Json& cell) {
  Json seedless = {{"key", cell.at("key")}};
  seedless["key"].erase("seed");
  return portable_key(seedless);
}

}  // namespace

std::optional<double> tested_metric(const Bound& bound, const Json& cell, BoundOutcome& outcome) {
  const std::optional<double> value = number_at(cell, bound.metric_place);
  if (!value) {
    outcome.violations.push_back({cell_reference(cell), bound.metric + " is null", {}, {}});
  }
  return value;
}

std::optional<double> limit_of(const LimitRule& rule, const Json& cell) {
  if (rule.number) return rule.number;
  // A parameter given as {"memory": F} has its solved value in `derived`.
  const auto given = Json::json_pointer("/key/params") / rule.param;
  const bool is_solved = cell.contains(given / "memory");
  return number_at(cell, is_solved ? Json::json_pointer("/derived") / rule.param : given);
}

void check_limit(const LimitRule& rule, const Bound& bound, const MatchedCells& cells,
                 BoundOutcome& outcome) {
  std::optional<double> largest;
  std::optional<double> share;
  CheckedRecords::Reader reader(cells.all);
  for (const std::uint32_t place : cells.sound) {
    const Json cell = reader.at(place);
    const auto value = tested_metric(bound, cell, outcome);
    if (!value) continue;
    ++outcome.tested;
    const double limit = limit_of(rule, cell).value();
    largest = std::max(largest.value_or(*value), *value);
    if (limit > 0.0) share = std::max(share.value_or(*value / limit), *value / limit);
    if (*value > limit) {
      outcome.violations.push_back({cell_reference(cell), "above the limit", value, limit});
    }
  }
  if (largest) outcome.evidence["largest"] = *largest;
  if (share) outcome.evidence["largest_share_of_limit"] = *share;
}

void check_range(const RangeRule& rule, const Bound& bound, const MatchedCells& cells,
                 BoundOutcome& outcome) {
  std::optional<double> smallest;
  std::optional<double> largest;
  const auto test = [&](const Json& cell) {
    const auto value = tested_metric(bound, cell, outcome);
    if (!value) return false;
    smallest = std::min(smallest.value_or(*value), *value);
    largest = std::max(largest.value_or(*value), *value);
    if (rule.at_most && *value > *rule.at_most) {
      outcome.violations.push_back({cell_reference(cell), "above at_most", value, rule.at_most});
    }
    if (rule.at_least && *value < *rule.at_least) {
      outcome.violations.push_back({cell_reference(cell), "below at_least", value, rule.at_least});
    }
    return true;
  };
  CheckedRecords::Reader reader(cells.all);
  for (const std::uint32_t cell : cells.sound) outcome.tested += test(reader.at(cell)) ? 1 : 0;
  for (const std::uint32_t cell : cells.vacuous) test(reader.at(cell));
  if (smallest) outcome.evidence["smallest"] = *smallest;
  if (largest) outcome.evidence["largest"] = *largest;
}

void check_trivial(const TrivialRule& rule, const Bound& bound, const MatchedCells& cells,
                   BoundOutcome& outcome) {
  const std::vector<Json::json_pointer> places = trivial_places(bound.metric);
  std::optional<double> largest;  // share of the trivial answer's
  const auto test = [&](const Json& cell) {
    const auto value = tested_metric(bound, cell, outcome);
    if (!value) return false;
    std::optional<double> best;
    for (const Json::json_pointer& place : places) {
      const auto trivial = number_at(cell, place);
      if (trivial) best = std::min(best.value_or(*trivial), *trivial);
    }
    if (!best) {
      outcome.violations.push_back(
          {cell_reference(cell),
           "has no trivial answers to compare with; run the sweep again with this version",
           value,
           {}});
      return false;
    }
    if (*best > 0.0) largest = std::max(largest.value_or(0.0), *value / *best);
    const double allowed = rule.share * *best;
    if (!(*value < allowed)) {
      outcome.violations.push_back(
          {cell_reference(cell), "not below what a trivial answer has", value, allowed});
    }
    return true;
  };
  CheckedRecords::Reader reader(cells.all);
  for (const std::uint32_t cell : cells.sound) outcome.tested += test(reader.at(cell)) ? 1 : 0;
  for (const std::uint32_t cell : cells.vacuous) test(reader.at(cell));
  if (largest) outcome.evidence["largest_share_of_trivial"] = *largest;
}

// Seeds of a group from which on so many failures may violate the bound.
Index least_seeds(double promised, double alpha) {
  auto seeds = static_cast<Index>(std::log(alpha) / std::log(promised));
  while (binomial_upper_tail(seeds, seeds, promised) >= alpha) ++seeds;
  return seeds;
}

// Each group is tested by itself at false_alarm over the number of groups (Bonferroni), so that a
// right algorithm sets off any of them with probability false_alarm at most.
void check_failure_rate(const LimitRule& rule, const Bound& bound, const MatchedCells& cells,
                        BoundOutcome& outcome) {
  KeyIndex find;
  std::vector<Group> groups;
  CheckedRecords::Reader reader(cells.all);
  for (const std::uint32_t number : cells.sound) {
    const Json cell = reader.at(number);
    const auto value = tested_metric(bound, cell, outcome);
    if (!value) continue;
    ++outcome.tested;
    const auto [place, is_new] = find.add(hash128(group_of(cell)));
    if (is_new) groups.push_back({.first = number});
    Group& group = groups[place];
    const double limit = limit_of(rule, cell).value();
    group.largest = group.seeds == 0 ? *value : std::max(group.largest, *value);
    group.limit = limit;
    ++group.seeds;
    group.failures += *value > limit ? 1 : 0;
  }
  if (groups.empty()) return;
  const double promised = rule.failure_rate.value();
  const double alpha = rule.false_alarm / static_cast<double>(groups.size());
  Json list = Json::array();
  double worst_rate = 0.0;
  double worst_limit = 0.0;
  Index toothless = 0;
  for (const Group& group : groups) {
    const double lower = clopper_pearson_lower(group.failures, group.seeds, alpha);
    const double p = binomial_upper_tail(group.failures, group.seeds, promised);
    const double rate = group.failures / static_cast<double>(group.seeds);
    worst_rate = std::max(worst_rate, rate);
    worst_limit = std::max(worst_limit, lower);
    toothless += binomial_upper_tail(group.seeds, group.seeds, promised) < alpha ? 0 : 1;
    Json reference = cell_reference(reader.at(group.first));
    reference.erase("id");
    reference.erase("seed");
    list.push_back({{"group", reference},
                    {"seeds", group.seeds},
                    {"failures", group.failures},
                    {"largest", group.largest},
                    {"lower_limit", lower},
                    {"p_value", p}});
    if (p < alpha) {
      outcome.violations.push_back(
          {reference,
           fmt::format("{} of {} seeds are above the limit {:.4g}; the rate is {:.4g} or more "
                       "(Clopper-Pearson, level 1 - {:.3g}: false_alarm over {} streams), promised "
                       "are {:.4g}",
                       group.failures, group.seeds, group.limit, lower, alpha, groups.size(),
                       promised),
           lower, promised});
    }
  }
  if (toothless == std::ssize(groups)) {
    const auto most = std::ranges::max(groups, {}, &Group::seeds).seeds;
    outcome.violations.push_back(
        {nullptr,
         fmt::format("{} seeds are too few: the bound would hold with all of them above the limit; "
                     "give each stream at least {} seeds, or a higher false_alarm",
                     most, least_seeds(promised, alpha)),
         {},
         {}});
  }
  outcome.evidence["groups"] = groups.size();
  outcome.evidence["worst_rate"] = worst_rate;
  outcome.evidence["largest_lower_limit"] = worst_limit;
  outcome.evidence["promised_rate"] = promised;
  outcome.evidence["alpha_per_group"] = alpha;
  outcome.evidence["groups_with_too_few_seeds_to_fail"] = toothless;
  outcome.evidence["by_group"] = std::move(list);
}

}  // namespace kvbench
