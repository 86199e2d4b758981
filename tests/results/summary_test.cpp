#include "results/summary.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "numerics/quantile.hpp"
#include "results/record.hpp"
#include "system/parallel.hpp"

namespace kvbench::test {
namespace summary_test {

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
  record["memory"] = {{"peak_bytes", 100 * error}, {"exact_bytes", 1000}};
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
          seed_means[seed] += value(layer, head, seed);
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

TEST_CASE("intervals are over the outermost level of texts, layers and heads that differs") {
  const auto entry_of = [](const std::vector<int>& layers, int heads,
                           const std::vector<std::string>& dumps) {
    Summary summary;
    for (std::size_t dump = 0; dump < dumps.size(); ++dump) {
      for (const int layer : layers) {
        for (int head = 0; head < heads; ++head) {
          summary.add(made_record(layer, head, nullptr, value(layer, head, static_cast<int>(dump)),
                                  "x", "ok", dumps[dump]));
        }
      }
    }
    return summary.json()[0];
  };
  // Three layers of two heads: Student's t with 2 degrees of freedom over the layers' means.
  const Json layers = entry_of({0, 1, 4}, 2, {"d"});
  CHECK(layers["ci95_over"] == Json({{"level", "layer"}, {"groups", 3}}));
  std::vector<double> means;
  for (const int layer : {0, 1, 4}) means.push_back((value(layer, 0, 0) + value(layer, 1, 0)) / 2);
  const double mean = (means[0] + means[1] + means[2]) / 3;
  double squares = 0.0;
  for (const double m : means) squares += (m - mean) * (m - mean);
  const double half = 4.302652729911275 * std::sqrt(squares / 2 / 3);
  const double factor = std::exp(half / mean);
  CHECK(metric(layers)["ci95"][0].get<double>() == doctest::Approx(mean / factor).epsilon(1e-9));
  CHECK(metric(layers)["ci95"][1].get<double>() == doctest::Approx(mean * factor).epsilon(1e-9));

  CHECK(entry_of({7}, 4, {"d"})["ci95_over"] == Json({{"level", "kv_head"}, {"groups", 4}}));
  CHECK(entry_of({0, 1}, 2, {"d", "e"})["ci95_over"] ==
        Json({{"level", "sequence"}, {"groups", 2}}));
  CHECK(entry_of({0}, 1, {"d"})["ci95_over"].is_null());
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
  CHECK(entry["units"] == 3);
  CHECK(metric(entry)["units"] == 2);  // head 1 has no number
  // Seeds 1 and 2 of head 2 alone: 2 and 4. Head 0 lacks seed 2.
  CHECK(metric(entry)["std_over_seeds"] == 1.0);
  CHECK(metric(entry, "relative_max_error").is_null());
}

TEST_CASE("cells that are not ok are counted and change no mean, labels and dumps are kept apart") {
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
  CHECK(entries[0]["skipped"] == 1);
  CHECK(entries[0]["units"] == 2);
  CHECK(entries[0]["units_asked"] == 3);  // head 1 of "d" besides
  CHECK(metric(entries[0])["mean"] == 2.0);
  CHECK(!metric(entries[0]).contains("units"));
  CHECK(entries[0]["ci95_over"]["groups"] == 2);
  CHECK(entries[2]["label"] == "y");
  CHECK(metric(entries[2])["mean"] == 7.0);
}

TEST_CASE("a setting whose cells are all skipped, or a layer of it, has no entry") {
  Summary summary;
  summary.add(made_record(0, 0, 1, 0.0, "none", "skipped"));
  summary.add(made_record(0, 0, 1, 0.0, "x", "skipped"));
  summary.add(made_record(3, 0, 1, 2.0));
  const Json entries = summary.json();
  REQUIRE(entries.size() == 2);
  CHECK(entries[0]["label"] == "x");
  CHECK(entries[0]["units"] == 1);
  CHECK(entries[0]["units_asked"] == 2);
  CHECK(entries[1]["layer"] == 3);
  CHECK(entries[1]["units_asked"] == 1);
}

Json with_bytes(Json record, double peak, double exact) {
  record["memory"] = {{"peak_bytes", peak}, {"exact_bytes", exact}};
  return record;
}

TEST_CASE("memory of a setting is bytes over bytes") {
  Summary summary;
  // A window that is kept whole, and a tenth of a long cache, of two seeds: 100 + (300 + 500) / 2.
  summary.add(with_bytes(made_record(0, 0, 1, 1.0), 100, 100));
  summary.add(with_bytes(made_record(0, 0, 2, 1.0), 100, 100));
  summary.add(with_bytes(made_record(1, 0, 1, 1.0), 300, 3900));
  summary.add(with_bytes(made_record(1, 0, 2, 1.0), 500, 3900));
  const Json entry = summary.json()[0];
  CHECK(entry["memory"]["fraction"] == 500.0 / 4000.0);
  CHECK(entry["memory"]["peak_bytes"] == 250.0);
  CHECK(summary.compared().settings.at(0).memory_fraction == 500.0 / 4000.0);
}

TEST_CASE("traffic of a setting is bytes over bytes") {
  const auto reads = [](int layer, double bytes, double fraction) {
    Json record = made_record(layer, 0, nullptr, 1.0);
    record["traffic"] = {{"bytes_read", {{"mean", bytes}}}, {"fraction", fraction}};
    return record;
  };
  Summary summary;
  summary.add(reads(0, 64, 1.0));  // a window of 64 bytes
  summary.add(reads(1, 256, 0.25));
  CHECK(summary.json()[0]["traffic"]["fraction"] == 320.0 / 1088.0);
  CHECK(summary.json()[0]["traffic"]["bytes_read.mean"] == 160.0);
  CHECK(summary.compared().settings.at(0).traffic_fraction == 320.0 / 1088.0);
}

TEST_CASE("settings are compared over the units that every one of them has") {
  Summary summary;
  // Method a: layers 0 and 1, heads 0 and 1. Method b: skipped in layer 0. Method c: never runs.
  for (int head = 0; head < 2; ++head) {
    summary.add(with_bytes(made_record(0, head, nullptr, 1.0, "a"), 50, 50));
    summary.add(with_bytes(made_record(1, head, nullptr, 3.0 + head, "a"), 100, 400));
    summary.add(made_record(0, head, nullptr, 0.0, "b", "skipped"));
    summary.add(made_record(1, head, nullptr, 2.0, "b"));
    for (const int layer : {0, 1}) summary.add(made_record(layer, head, 1, 0.0, "c", "failed"));
  }
  const ComparedSettings compared = summary.compared();
  CHECK(compared.units == 2);
  CHECK(compared.asked == 4);
  CHECK(compared.over == UnitLevel::kHead);
  CHECK(compared.groups == 2);
  REQUIRE(compared.settings.size() == 3);
  const SettingMeans& a = compared.settings[0];
  CHECK(a.units == 4);
  CHECK(a.frobenius.mean == 3.5);  // over all of its own it is 2.25
  CHECK(a.l2.mean == 7.0);
  CHECK(a.memory_fraction == 0.25);
  // Values 3 and 4: t(1) 0.5 on the log scale.
  const double factor = std::exp(12.706204736432095 * 0.5 / 3.5);
  CHECK(a.frobenius.interval->low == doctest::Approx(3.5 / factor));
  CHECK(a.frobenius.interval->high == doctest::Approx(3.5 * factor));
  CHECK(a.spectral.undefined == 2);
  CHECK(!a.spectral.mean);
  CHECK(compared.settings[1].units == 2);
  CHECK(compared.settings[1].asked == 4);
  CHECK(compared.settings[1].frobenius.mean == 2.0);
  CHECK(compared.settings[2].units == 0);
  CHECK(compared.settings[2].asked == 4);
  CHECK(!compared.settings[2].is_compared);
}

TEST_CASE(
    "settings without a common unit are compared where their methods have one, or not at all") {
  Summary summary;
  // Method a: a setting of each layer, and one of both. Method b: both layers.
  const auto with_t = [](Json record, int t) {
    record["key"]["params"]["T"] = t;
    return record;
  };
  for (const int layer : {0, 1}) {
    summary.add(with_t(made_record(layer, 0, nullptr, 1.0 + layer, "a"), layer));
    summary.add(with_t(made_record(layer, 0, nullptr, 5.0, "a"), 7));
    summary.add(made_record(layer, 0, nullptr, 2.0, "b"));
  }
  const ComparedSettings compared = summary.compared();
  CHECK(compared.units == 2);
  CHECK(!compared.settings[0].is_compared);
  CHECK(!compared.settings[0].frobenius.mean);
  CHECK(compared.settings[1].frobenius.mean == 5.0);

  Summary apart;
  apart.add(made_record(0, 0, nullptr, 1.0, "a"));
  apart.add(made_record(1, 0, nullptr, 2.0, "b"));
  CHECK(apart.compared().units == 0);
  CHECK(apart.compared().asked == 2);
  CHECK(!apart.compared().settings[0].frobenius.mean);
}

TEST_CASE("settings are told apart by their storage, which stands as in the key") {
  Summary summary;
  const Json q8 = {{"keys", {{"codec", "q8_0"}}}, {"values", "float"}};
  for (const bool stored : {false, true}) {
    for (int head = 0; head < 2; ++head) {
      Json record = made_record(0, head, 0, stored ? 0.5 : 0.25);
      if (stored) record["key"]["storage"] = q8;
      summary.add(record);
    }
  }
  const Json entries = summary.json();
  REQUIRE(entries.size() == 4);
  CHECK(!entries[0].contains("storage"));
  CHECK(entries[2]["storage"] == q8);
  CHECK(metric(entries[0])["mean"] == 0.25);
  CHECK(metric(entries[2])["mean"] == 0.5);
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

// A record of a whole layer of sequence `text`, with one error.
Json layer_record_of(const std::string& text, int layer, int seed, double error,
                     const std::string& status = "ok") {
  Json record = {{"id", "1"}, {"status", status}, {"label", "x"}};
  record["key"] = {{"dump", "d"},      {"sequence", text},     {"layer", layer},
                   {"algorithm", "a"}, {"params", {{"T", 1}}}, {"seed", seed}};
  record["errors"] = nullptr;
  if (status == "ok") record["errors"] = {{"relative_output_l2", {{"mean", error}}}};
  return record;
}

TEST_CASE("records of whole layers are averaged over texts and layers, beside their cells") {
  Summary summary;
  for (const int layer : {0, 4}) summary.add(made_record(layer, 0, 1, 0.5));
  // Text p: layer 0 of two seeds, 1 and 3, layer 4: 4. Text q: layer 0: 8.
  summary.add_layer(layer_record_of("p", 0, 1, 1.0));
  summary.add_layer(layer_record_of("p", 0, 2, 3.0));
  summary.add_layer(layer_record_of("p", 4, 1, 4.0));
  summary.add_layer(layer_record_of("q", 0, 1, 8.0));
  summary.add_layer(layer_record_of("q", 4, 1, 0.0, "failed"));
  summary.add_layer(layer_record_of("q", 4, 2, 0.0, "skipped"));
  const Json entries = summary.json();
  REQUIRE(entries.size() == 3);
  const Json& layers = entries[0].at("layers");
  CHECK(layers.at("records") == 4);
  CHECK(layers.at("failed") == 1);
  CHECK(layers.at("skipped") == 1);
  CHECK(layers.at("units") == 3);
  CHECK(layers.at("units_asked") == 4);
  CHECK(layers.at("ci95_over") == Json{{"level", "sequence"}, {"groups", 2}});
  const Json& error = layers.at("errors").at("relative_output_l2.mean");
  CHECK(error.at("mean") == doctest::Approx((2.0 + 4.0 + 8.0) / 3.0));
  CHECK(error.at("ci95").is_array());
  CHECK(layers.at("errors").at("cancellation.mean").is_null());
  const Json& layer_0 = entries[1].at("layers");
  CHECK(layer_0.at("errors").at("relative_output_l2.mean").at("mean") == doctest::Approx(5.0));
  // Cells are as without them.
  CHECK(metric(entries[0]).at("mean") == 0.5);
  CHECK(entries[0].at("cells") == 2);
  Summary without;
  without.add(made_record(0, 0, 1, 0.5));
  CHECK(!without.json()[0].contains("layers"));
}

// Seeds enough that records lie in a file and an entry's metrics are summed up in several passes.
TEST_CASE("twenty thousand seeds are summarised as few are") {
  Summary summary;
  constexpr int kSeeds = 20'000;
  std::vector<double> of_seed;
  for (const int layer : {3, 1}) {
    for (int seed = 0; seed < kSeeds; ++seed) {
      const double error = value(layer, 0, seed % 997);
      summary.add(made_record(layer, 0, seed, error));
      if (layer == 3) of_seed.push_back(error);
      if (layer == 1) of_seed[seed] += error;
    }
  }
  double mean = 0.0;
  for (double& error : of_seed) mean += (error /= 2.0) / kSeeds;
  double variance = 0.0;
  for (const double error : of_seed) variance += (error - mean) * (error - mean) / kSeeds;
  const Json entries = summary.json();
  REQUIRE(entries.size() == 3);
  CHECK(entries[0]["cells"] == 2 * kSeeds);
  CHECK(metric(entries[0])["mean"].get<double>() == doctest::Approx(mean).epsilon(1e-12));
  CHECK(metric(entries[0])["std_over_seeds"].get<double>() ==
        doctest::Approx(std::sqrt(variance)).epsilon(1e-9));
  // The last metrics with an interval, and those without.
  const Json& errors = entries[0]["errors"];
  CHECK(errors["relative_l2.mean"]["mean"].get<double>() ==
        doctest::Approx(2 * mean).epsilon(1e-12));
  CHECK(errors["relative_l2.mean"]["std_over_seeds"].get<double>() ==
        doctest::Approx(2 * std::sqrt(variance)).epsilon(1e-9));
  CHECK(entries[0]["memory"]["fraction"].get<double>() ==
        doctest::Approx(mean / 10).epsilon(1e-12));
  CHECK(entries[1]["layer"] == 1);
  const auto settings = summary.compared().settings;
  REQUIRE(settings.size() == 1);
  CHECK(settings[0].l2.mean.value() == doctest::Approx(2 * mean).epsilon(1e-12));
}

TEST_CASE("seeds are taken in the order of their texts, as the file always was") {
  // The last bits of these numbers depend on it.
  const auto deviation = [](const std::vector<std::pair<Json, double>>& cells) {
    Summary summary;
    for (const auto& [seed, error] : cells) summary.add(made_record(0, 0, seed, error));
    return metric(summary.json()[0])["std_over_seeds"].get<double>();
  };
  const double in_order = deviation({{1, 0.39}, {10, 0.46}, {2, 0.75}, {nullptr, 0.4}});
  CHECK(deviation({{nullptr, 0.4}, {2, 0.75}, {10, 0.46}, {1, 0.39}}) == in_order);
  const std::vector<double> means = {0.39, 0.46, 0.75, 0.4};  // means of seeds 1, 10, 2, null
  double center = 0.0;
  for (const double mean : means) center += mean;
  center /= 4.0;
  double squares = 0.0;
  for (const double mean : means) squares += (mean - center) * (mean - center);
  CHECK(in_order == std::sqrt(squares / 4.0));
}

}  // namespace summary_test
}  // namespace kvbench::test
