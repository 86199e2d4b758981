#include "results/summary.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "core/parallel.hpp"
#include "core/quantile.hpp"
#include "results/bootstrap.hpp"
#include "results/record.hpp"

namespace kvbench::test {
namespace {

// A record with one number that varies: relative_frobenius_error, null where NaN.
Json made_record(int layer, int head, const Json& seed, double error,
                 const std::string& label = "x", const std::string& status = "ok",
                 const std::string& dump = "d") {
  Json record = {{"id", "0"}, {"status", status}, {"label", label}};
  record["key"] = {{"dump", dump},     {"sequence", "0"},      {"layer", layer}, {"kv_head", head},
                   {"algorithm", "a"}, {"params", {{"T", 1}}}, {"seed", seed}};
  if (status != "ok") return record;
  record["errors"]["relative_frobenius_error"] = std::isnan(error) ? Json(nullptr) : Json(error);
  record["errors"]["relative_l2"] = {{"mean", 2 * error}};
  record["memory"]["fraction"] = error / 10;
  return record;
}

const Json& metric(const Json& entry, const char* name = "relative_frobenius_error") {
  return entry.at("errors").at(name);
}

double value(int layer, int head, int seed) {
  return std::sin(1.0 + 10.0 * layer + 3.0 * head + 0.7 * seed) + 2.0;
}

TEST_CASE("units are averaged over seeds first; the deviation is over seeds of the mean of units") {
  Summary summary;
  const std::vector<int> layers = {0, 4};
  const int heads = 3;
  const int seeds = 5;
  for (const int layer : layers) {
    for (int head = 0; head < heads; ++head) {
      for (int seed = 0; seed < seeds; ++seed) {
        summary.add(made_record(layer, head, seed, value(layer, head, seed)));
      }
    }
  }
  const Json entries = summary.json();
  REQUIRE(entries.size() == 3);
  CHECK(entries[0]["layer"].is_null());
  CHECK(entries[1]["layer"] == 0);
  CHECK(entries[2]["layer"] == 4);
  for (const Json& entry : entries) {
    std::vector<double> seed_means(seeds, 0.0);
    int units = 0;
    double mean = 0.0;
    for (const int layer : layers) {
      if (!entry["layer"].is_null() && entry["layer"] != layer) continue;
      for (int head = 0; head < heads; ++head, ++units) {
        for (int seed = 0; seed < seeds; ++seed) {
          mean += value(layer, head, seed) / seeds;
          seed_means[static_cast<std::size_t>(seed)] += value(layer, head, seed);
        }
      }
    }
    mean /= units;
    double squares = 0.0;
    for (double& seed_mean : seed_means) {
      seed_mean /= units;
      squares += (seed_mean - mean) * (seed_mean - mean);
    }
    CHECK(entry["cells"] == units * seeds);
    CHECK(metric(entry)["mean"].get<double>() == doctest::Approx(mean).epsilon(1e-13));
    CHECK(metric(entry)["std_over_seeds"].get<double>() ==
          doctest::Approx(std::sqrt(squares / seeds)).epsilon(1e-12));
    CHECK(metric(entry, "relative_l2.mean")["mean"].get<double>() ==
          doctest::Approx(2 * mean).epsilon(1e-13));
    CHECK(entry["memory"]["fraction"].get<double>() == doctest::Approx(mean / 10).epsilon(1e-13));
    CHECK(entry["memory"]["tokens"].is_null());
    CHECK(metric(entry, "kl_divergence.mean").is_null());
  }
}

TEST_CASE("the interval is that of a plain percentile bootstrap over units") {
  // Against an independent bootstrap with another generator: quantiles of 10,000 resampled means
  // have a standard error below 0.03 of the means' deviation.
  Summary summary;
  std::vector<double> units;
  for (int head = 0; head < 20; ++head) {
    units.push_back(value(0, head, 0));
    summary.add(made_record(0, head, nullptr, units.back()));
  }
  const Json entry = summary.json()[0];
  const double low = metric(entry)["ci95"][0].get<double>();
  const double high = metric(entry)["ci95"][1].get<double>();

  std::mt19937_64 random(1);
  std::uniform_int_distribution<std::size_t> draw(0, units.size() - 1);
  std::vector<double> means(10000, 0.0);
  double sum = 0.0;
  double squares = 0.0;
  for (double& mean : means) {
    for (std::size_t i = 0; i < units.size(); ++i) mean += units[draw(random)];
    mean /= static_cast<double>(units.size());
    sum += mean;
    squares += mean * mean;
  }
  const double deviation = std::sqrt(squares / 1e4 - (sum / 1e4) * (sum / 1e4));
  std::sort(means.begin(), means.end());
  CHECK(std::abs(low - means[250]) < 0.2 * deviation);
  CHECK(std::abs(high - means[9750]) < 0.2 * deviation);
  CHECK(low < metric(entry)["mean"].get<double>());
  CHECK(high > metric(entry)["mean"].get<double>());
  CHECK(high - low == doctest::Approx(2 * 1.96 * deviation).epsilon(0.1));
}

TEST_CASE("every resample draws as many units as there are, each unit equally often") {
  for (const Index units : {2, 3, 7, 64}) {
    const ResampleCounts counts(units);
    std::vector<Index> drawn(static_cast<std::size_t>(kResamples), 0);
    for (Index unit = 0; unit < units; ++unit) {
      Index total = 0;
      for (Index r = 0; r < kResamples; ++r) {
        total += counts.of_unit(unit)[r];
        drawn[static_cast<std::size_t>(r)] += counts.of_unit(unit)[r];
      }
      CHECK(std::abs(static_cast<double>(total) - 1e4) < 6 * std::sqrt(1e4));
    }
    CHECK(std::all_of(drawn.begin(), drawn.end(), [&](Index n) { return n == units; }));
  }
}

TEST_CASE("quantiles of the resampled means interpolate linearly") {
  // Two units of values 0 and 1: the mean of a resample is 0, 0.5 or 1, with chances 1/4, 1/2, 1/4.
  const auto interval = bootstrap_intervals(ResampleCounts(2), {{0.0, 1.0}, {5.0, 5.0}});
  CHECK(interval[0] == std::pair<double, double>{0.0, 1.0});
  CHECK(interval[1] == std::pair<double, double>{5.0, 5.0});
}

TEST_CASE("the ends of an interval are, to the bit, the quantiles that every other number is") {
  constexpr Index kUnits = 31;
  const ResampleCounts counts(kUnits);
  const auto sorted_means = [&](const std::vector<double>& values) {
    std::vector<double> means(static_cast<std::size_t>(kResamples), 0.0);
    for (Index unit = 0; unit < kUnits; ++unit) {
      for (std::size_t r = 0; r < means.size(); ++r) {
        means[r] +=
            static_cast<double>(counts.of_unit(unit)[r]) * values[static_cast<std::size_t>(unit)];
      }
    }
    for (double& mean : means) mean /= static_cast<double>(kUnits);
    std::sort(means.begin(), means.end());
    return means;
  };
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> draw(0.0, 1.0);
  for (int column = 0; column < 20; ++column) {
    for (const double quantile : {0.025, 0.975}) {
      std::vector<double> values(kUnits);
      for (double& value : values) value = draw(random);
      // Rules differ in how they round, which shows where neighbours differ by as much as they are:
      // around zero.
      const double end = sorted_quantile(sorted_means(values), quantile);
      for (double& value : values) value -= end;
      const std::vector<double> means = sorted_means(values);
      const auto interval = bootstrap_intervals(counts, {values});
      CHECK(interval[0].first == sorted_quantile(means, 0.025));
      CHECK(interval[0].second == sorted_quantile(means, 0.975));
    }
  }
}

TEST_CASE("one unit has no interval, and no seeds no deviation") {
  Summary summary;
  summary.add(made_record(0, 0, nullptr, 0.5));
  const Json entry = summary.json()[0];
  CHECK(metric(entry)["ci95"].is_null());
  CHECK(metric(entry)["std_over_seeds"] == 0.0);
  CHECK(metric(entry)["mean"] == 0.5);
}

TEST_CASE("a metric that is null somewhere is averaged over the rest; null everywhere is null") {
  Summary summary;
  summary.add(made_record(0, 0, 1, 1.0));
  summary.add(made_record(0, 0, 2, NAN));
  summary.add(made_record(0, 1, 1, NAN));
  summary.add(made_record(0, 1, 2, NAN));
  summary.add(made_record(0, 2, 1, 2.0));
  summary.add(made_record(0, 2, 2, 4.0));
  const Json entry = summary.json()[0];
  CHECK(metric(entry)["mean"].get<double>() == doctest::Approx((1.0 + 3.0) / 2));
  CHECK(metric(entry)["ci95"].size() == 2);
  CHECK(metric(entry, "relative_max_error").is_null());
}

TEST_CASE(
    "skipped cells change nothing, failed ones are counted, labels and dumps are kept apart") {
  Summary summary;
  summary.add(made_record(0, 0, 1, 1.0));
  summary.add(made_record(0, 1, 1, 9.0, "x", "skipped"));
  summary.add(made_record(0, 1, 1, 9.0, "x", "failed"));
  summary.add(made_record(0, 0, 1, 3.0, "x", "ok", "another dump"));
  summary.add(made_record(0, 0, 1, 7.0, "y"));
  const Json entries = summary.json();
  REQUIRE(entries.size() == 4);
  CHECK(entries[0]["cells"] == 2);
  CHECK(entries[0]["failed"] == 1);
  CHECK(metric(entries[0])["mean"] == 2.0);
  CHECK(metric(entries[0])["ci95"] == Json({1.0, 3.0}));
  CHECK(entries[2]["label"] == "y");
  CHECK(metric(entries[2])["mean"] == 7.0);
}

TEST_CASE("the bits do not depend on the number of threads") {
  const auto text = [](int threads) {
    const int before = thread_count();
    set_thread_count(threads);
    Summary summary;
    for (int point = 0; point < 6; ++point) {
      for (int head = 0; head < 9; ++head) {
        summary.add(made_record(point % 2, head, 3, value(point, head, 3), std::to_string(point)));
      }
    }
    const std::string out = to_line(summary.json());
    set_thread_count(before);
    return out;
  };
  CHECK(text(1) == text(2));
  CHECK(text(1) == text(5));
}

}  // namespace
}  // namespace kvbench::test
