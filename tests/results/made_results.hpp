// A small plan over a made-up dump, and results of its cells.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "replay/replay.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {

// 2 layers x 2 KV heads x (window at 2 budgets, one of them skipped + uniform with 3 seeds).
inline Plan made_plan(const SweepFolder& folder, const std::string& more = "\"seeds\": [7, 8, 9]",
                      const std::string& windows = R"("budget": [0.0001, 16])") {
  const SweepConfig config =
      folder.parse(sweep(entry("window", windows) + ", " + entry("uniform", R"("T": 1)"), more));
  return make_plan(config, {planned_dump("a", 100, {0, 4}, 2)});
}

inline void set_spread(CellMetrics& metrics, const std::string& path, double mean) {
  metrics[path + ".mean"] = mean;
  metrics[path + ".median"] = 0.9 * mean;
  metrics[path + ".p90"] = 2 * mean;
  metrics[path + ".p99"] = 3 * mean;
  metrics[path + ".max"] = 4 * mean;
}

// Every metric defined: those that the tests name are multiples of `error`, others are `error`.
inline CellResult made_result(double error) {
  CellResult result;
  CellMetrics& metrics = result.metrics;
  for (const MetricNumber& number : metric_numbers()) metrics[number.path] = error;
  metrics["errors.relative_spectral_error"] = 2 * error;
  metrics["errors.relative_max_error"] = 3 * error;
  set_spread(metrics, "errors.relative_l2", error);
  metrics["errors.relative_l2_posclamp_mean"] = 4 * error;
  set_spread(metrics, "errors.epsilon_spectral", 5 * error);
  metrics["errors.epsilon_spectral.last"] = 6 * error;
  set_spread(metrics, "errors.epsilon_frobenius", 7 * error);
  metrics["errors.epsilon_frobenius.last"] = 8 * error;
  set_spread(metrics, "errors.numerator_error", 9 * error);
  set_spread(metrics, "errors.normalizer_error", 10 * error);
  set_spread(metrics, "errors.cosine_distance", 11 * error);
  set_spread(metrics, "errors.kl_divergence", 12 * error);
  set_spread(metrics, "mass.kept", 0.5);
  set_spread(metrics, "mass.numerator", 0.6);
  set_spread(metrics, "mass.denominator", 0.7);
  metrics["counters.empty_denominator"] = 0.0;
  result.memory = {.tokens = 16,
                   .tokens_peak = 17,
                   .distinct_tokens = 15,
                   .vectors = 32,
                   .numbers = 2048,
                   .bookkeeping = 3,
                   .bytes = 4108,
                   .peak_bytes = 4364,
                   .exact_bytes = 25600,
                   .fraction = 4364.0 / 25600.0};
  result.seconds = 0.25;
  return result;
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace kvbench::test
