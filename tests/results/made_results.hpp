// A small plan over a made-up dump, and results of its cells.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "replay/replay.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {

// 2 layers x 2 KV heads x (window at 2 budgets, one of them skipped + uniform with 3 seeds).
inline Plan made_plan(const SweepFolder& folder, const std::string& more = "\"seeds\": [7, 8, 9]",
                      const std::string& windows = R"("budget": [0.0001, 16])") {
  const SweepConfig config =
      folder.parse(sweep(entry("window", windows) + ", " + entry("uniform", R"("T": 1)"), more));
  return make_plan(config, {planned_dump("a", 100, {0, 4}, 2)});
}

inline Distribution spread(double mean) {
  return {.mean = mean, .median = 0.9 * mean, .p90 = 2 * mean, .p99 = 3 * mean, .max = 4 * mean};
}

// Every metric defined, all of them multiples of `error`.
inline CellResult made_result(double error) {
  CellResult result;
  CellErrors& errors = result.errors;
  errors.relative_frobenius_error = error;
  errors.relative_spectral_error = 2 * error;
  errors.relative_max_error = 3 * error;
  errors.relative_l2 = spread(error);
  errors.relative_l2_posclamp_mean = 4 * error;
  errors.epsilon_spectral = spread(5 * error);
  errors.epsilon_spectral_last = 6 * error;
  errors.epsilon_frobenius = spread(7 * error);
  errors.epsilon_frobenius_last = 8 * error;
  errors.numerator_error = spread(9 * error);
  errors.normalizer_error = spread(10 * error);
  errors.cosine_distance = spread(11 * error);
  errors.kl_divergence = spread(12 * error);
  result.mass = {.kept = spread(0.5), .numerator = spread(0.6), .denominator = spread(0.7)};
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
