// Errors of whole layers against their definitions.
#include "metrics/layer_outputs.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "support/naive_layer.hpp"
#include "support/threads.hpp"
#include "system/parallel.hpp"

namespace kvbench::test {
namespace layer_outputs_test {

// Random outputs and errors of some settings, stored as a KV head's cells give them: [R * G, dv].
struct MadeLayer {
  Index kv_heads, group, rows, dv, hidden;
  std::vector<std::vector<double>> exact;                // by KV head
  std::vector<std::vector<std::vector<double>>> errors;  // by setting, by KV head
  std::vector<std::vector<double>> weights;              // by query head, [dv, hidden]
  std::vector<std::optional<double>> residual;

  MadeLayer(Index kv_heads_, Index group_, Index rows_, Index dv_, Index hidden_,
            std::size_t settings, unsigned seed)
      : kv_heads(kv_heads_), group(group_), rows(rows_), dv(dv_), hidden(hidden_) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    const auto numbers = [&](Index count) {
      std::vector<double> out(count);
      for (double& x : out) x = normal(random);
      return out;
    };
    for (Index h = 0; h < kv_heads; ++h) exact.push_back(numbers(rows * group * dv));
    for (std::size_t s = 0; s < settings; ++s) {
      errors.emplace_back();
      for (Index h = 0; h < kv_heads; ++h) errors[s].push_back(numbers(rows * group * dv));
    }
    for (Index h = 0; h < kv_heads * group; ++h) weights.push_back(numbers(dv * hidden));
    for (Index r = 0; r < rows; ++r) residual.emplace_back(1.0 + std::fabs(normal(random)));
  }

  ConstMatrix of_head(const std::vector<double>& outputs, Index g) const {
    return {outputs.data() + g * dv, rows, dv, group * dv};
  }

  // `chosen` settings in one pass.
  LayerOutputs outputs(const std::vector<std::size_t>& chosen) const {
    LayerOutputs out(rows, kv_heads * group, hidden, chosen.size());
    for (Index head = 0; head < kv_heads * group; ++head) {
      const auto kv = static_cast<std::size_t>(head / group);
      std::vector<ConstMatrix> of_settings;
      for (const std::size_t s : chosen) {
        of_settings.push_back(of_head(errors[s][kv], head % group));
      }
      out.add_head(head, {weights[head].data(), dv, hidden}, of_head(exact[kv], head % group),
                   of_settings);
    }
    return out;
  }

  LayerErrors errors_of(std::size_t setting, const std::vector<std::size_t>& chosen) const {
    return outputs(chosen).errors(setting, residual);
  }

  // `shift`: which head's weights the oracle takes for a head's own; 0: its own.
  NaiveLayer naive(std::size_t setting, Index shift = 0) const {
    const auto number = [this](const std::vector<std::vector<double>>& by_head, Index head,
                               Index row, Index k) {
      return by_head[head / group][(row * group + head % group) * dv + k];
    };
    return {kv_heads * group,
            rows,
            dv,
            hidden,
            [=, this](Index h, Index r, Index k) { return number(exact, h, r, k); },
            [=, this](Index h, Index r, Index k) { return number(errors[setting], h, r, k); },
            [=, this](Index h, Index k, Index c) {
              const Index other = (h + shift) % (kv_heads * group);
              return weights[other][k * hidden + c];
            },
            [this](Index r) { return residual[r]; }};
  }
};

// How many numbers differ by more than rounding.
int differing(const LayerErrors& errors, const NaiveLayerReport& naive) {
  int count = 0;
  REQUIRE(errors.numbers.size() == naive.numbers.size());
  for (std::size_t i = 0; i < layer_numbers().size(); ++i) {
    const MetricValue& a = errors.numbers[i];
    const std::optional<double>& b = naive.numbers.at(layer_numbers()[i].path);
    if (a.has_value() != b.has_value() ||
        (a && std::fabs(*a - *b) > 1e-12 * (1.0 + std::fabs(*b)))) {
      ++count;
    }
  }
  return count + (errors.undefined_rows == naive.undefined_rows ? 0 : 1);
}

double number(const LayerErrors& errors, const std::string& path) {
  for (std::size_t i = 0; i < layer_numbers().size(); ++i) {
    if (layer_numbers()[i].path == "errors." + path) return errors.numbers[i].value();
  }
  FAIL("no number " << path);
  return 0.0;
}

TEST_CASE("every error of a layer equals its definition, whatever the shape") {
  struct LayerSizes {
    Index kv_heads, group, rows, dv, hidden;
  };
  // 64 rows and 512 columns are a block.
  for (const LayerSizes& s :
       {LayerSizes{1, 1, 1, 1, 1}, LayerSizes{2, 3, 5, 4, 7}, LayerSizes{3, 1, 65, 2, 9},
        LayerSizes{1, 2, 3, 5, 513}, LayerSizes{2, 2, 64, 3, 512}, LayerSizes{1, 9, 2, 1, 1025}}) {
    CAPTURE(s.rows);
    CAPTURE(s.hidden);
    const MadeLayer layer(s.kv_heads, s.group, s.rows, s.dv, s.hidden, 3, 7);
    for (std::size_t setting = 0; setting < 3; ++setting) {
      CHECK(differing(layer.errors_of(setting, {0, 1, 2}),
                      naive_layer_report(layer.naive(setting))) == 0);
    }
  }
}

TEST_CASE("a layer of tiny or huge outputs has the same relative errors") {
  MadeLayer layer(2, 2, 3, 4, 5, 1, 11);
  for (auto& x : layer.residual) x.reset();
  const LayerErrors expected = layer.errors_of(0, {0});
  for (const double scale : {0x1p-900, 0x1p-530, 0x1p510}) {
    MadeLayer scaled = layer;
    for (auto& head : scaled.exact) {
      for (double& x : head) x *= scale;
    }
    for (auto& head : scaled.errors[0]) {
      for (double& x : head) x *= scale;
    }
    const LayerErrors found = scaled.errors_of(0, {0});
    CHECK(found.overflows.empty());
    for (std::size_t i = 0; i < expected.numbers.size(); ++i) {
      REQUIRE(found.numbers[i].has_value() == expected.numbers[i].has_value());
      if (expected.numbers[i]) {
        CHECK(*found.numbers[i] == doctest::Approx(*expected.numbers[i]).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("weights of the wrong head, or the errors of another setting, would be seen") {
  const MadeLayer layer(2, 2, 6, 4, 8, 2, 3);
  CHECK(differing(layer.errors_of(0, {0, 1}), naive_layer_report(layer.naive(0, 1))) > 10);
  CHECK(differing(layer.errors_of(0, {0, 1}), naive_layer_report(layer.naive(1))) > 10);
}

TEST_CASE("two heads of opposite errors cancel") {
  // W_0 and W_1 are the same row (3, 4): errors 2 and -1 come to (3, 4), of norm 5, where the
  // heads' own are 10 and 5.
  LayerOutputs outputs(1, 2, 2, 1);
  const std::vector<double> weight = {3.0, 4.0};
  const std::vector<double> exact = {2.0};
  const std::vector<double> errors[] = {{2.0}, {-1.0}};
  for (Index head = 0; head < 2; ++head) {
    outputs.add_head(head, {weight.data(), 1, 2}, {exact.data(), 1, 1},
                     {{errors[head].data(), 1, 1}});
  }
  const LayerErrors found = outputs.errors(0, {4.0});
  CHECK(number(found, "relative_output_l2.mean") == 5.0 / 20.0);
  CHECK(number(found, "relative_output_l1.mean") == 7.0 / 28.0);
  CHECK(number(found, "residual_ratio.max") == 5.0 / 4.0);
  CHECK(number(found, "cancellation.median") == 5.0 / 15.0);
  CHECK(number(found, "half_heads.mean") == 0.5);  // 100 of 125
  CHECK(found.undefined_rows == 0);
}

TEST_CASE("the share of heads that carry half, by hand") {
  const auto share = [](const std::vector<double>& norms) { return half_heads(norms); };
  CHECK(share({3, 4, 0, 0}) == 0.25);    // 16 of 25
  CHECK(share({1, 1, 1, 1}) == 0.5);     // 2 of 4, exactly half
  CHECK(share({1, 1, 1}) == 2.0 / 3.0);  // 2 of 3
  CHECK(share({0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}) == 0.5);
  CHECK(share({5}) == 1.0);
  CHECK(share({0, 0}) == 0.0);
}

TEST_CASE("rows without an exact output or a residual norm are left out and counted") {
  MadeLayer layer(1, 2, 4, 3, 5, 1, 5);
  for (std::size_t i = 0; i < 6; ++i) layer.exact[0][i] = 0.0;  // row 0, both heads
  layer.residual[2] = std::nullopt;
  const LayerErrors found = layer.errors_of(0, {0});
  CHECK(found.undefined_rows == 2);
  CHECK(differing(found, naive_layer_report(layer.naive(0))) == 0);
  for (auto& norm : layer.residual) norm = std::nullopt;
  const LayerErrors without = layer.errors_of(0, {0});
  CHECK(without.undefined_rows == 1);
  CHECK(differing(without, naive_layer_report(layer.naive(0))) == 0);
}

TEST_CASE("no error at all is 0, not undefined") {
  MadeLayer layer(1, 1, 2, 2, 3, 1, 5);
  for (double& x : layer.errors[0][0]) x = 0.0;
  const LayerErrors found = layer.errors_of(0, {0});
  CHECK(found.undefined_rows == 0);
  for (const MetricValue& value : found.numbers) CHECK(value.value() == 0.0);
}

TEST_CASE("bits depend neither on threads nor on the settings of the pass") {
  const MadeLayer layer(2, 3, 150, 16, 700, 5, 11);
  std::vector<LayerErrors> all;
  for (const int threads : {1, 2, 3}) {
    const Threads count(threads);
    all.push_back(layer.errors_of(3, {0, 1, 2, 3, 4}));
    all.push_back(layer.errors_of(0, {3}));
  }
  for (const LayerErrors& each : all) CHECK(each.numbers == all.front().numbers);
}

TEST_CASE("a metric of a layer that overflows is null and named, and the others have their value") {
  MadeLayer layer(1, 1, 3, 1, 1, 1, 5);
  layer.errors[0][0][1] = 1e300;
  layer.weights[0][0] = 1e10;
  const LayerErrors found = layer.errors_of(0, {0});
  std::vector<std::string> named;
  for (const Overflow& each : found.overflows) {
    named.push_back(each.path);
    CHECK(each.rows == 1);
  }
  CHECK(named == std::vector<std::string>{"errors.relative_output_l2", "errors.relative_output_l1",
                                          "errors.residual_ratio", "errors.cancellation"});
  CHECK(number(found, "half_heads.max") == 1.0);
}

}  // namespace layer_outputs_test
}  // namespace kvbench::test
