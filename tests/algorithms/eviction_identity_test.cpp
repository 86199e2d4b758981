// I12: what every pure (unweighted) eviction does to an answer.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>

#include "support/algorithm_named.hpp"
#include "support/library_answer.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_rules.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace eviction_identity_test {

struct Evictor {
  const char* id;
  std::vector<std::pair<std::string, Value>> given;
};

std::vector<Evictor> evictors() {
  const Value budget{std::int64_t{12}};
  return {{"window", {{"budget", budget}}},
          {"dilated_window", {{"budget", budget}}},
          {"streaming_llm", {{"budget", budget}}},
          {"h2o", {{"budget", budget}}},
          {"key_attention", {{"budget", budget}}},
          {"kcenter", {{"budget", budget}}},
          {"oracle_topk", {{"budget", budget}}},
          {"roco", {{"budget", budget}}},
          {"caote", {{"budget", budget}}},
          {"rkv", {{"budget", budget}}},
          {"tova", {{"budget", budget}}},
          {"keyformer", {{"budget", budget}}},
          {"snapkv", {{"budget", budget}, {"window", Value{std::int64_t{4}}}}},
          {"pyramidkv", {{"budget", budget}, {"window", Value{std::int64_t{4}}}}},
          {"uniform",
           {{"budget", budget},
            {"sinks", Value{std::int64_t{2}}},
            {"weights", Value{std::string("none")}}}}};
}

// The part of I12 that an answer breaks, "" where it keeps all. The kept tokens are those of the
// sketch.
std::string error_of_answer(const Stream& stream, int g, Index row, const Sketch& sketch) {
  const NaiveRow exact = naive_row(stream, g, row);
  const Answer estimate = library_answer(stream, g, row, sketch);
  const std::vector<Index> kept = kept_tokens(sketch);
  const std::size_t dv = static_cast<std::size_t>(stream.shape.dv);
  std::vector<Real> kept_sum(dv, 0);
  std::vector<Real> evicted_sum(dv, 0);
  Real rho = exact.sink / exact.z;  // kept by every method, with no value
  Real largest_value = 0;
  for (std::size_t j = 0; j < exact.p.size(); ++j) {
    const Index token = exact.lo + static_cast<Index>(j);
    const bool is_kept = std::binary_search(kept.begin(), kept.end(), token);
    Real norm = 0;
    for (std::size_t k = 0; k < dv; ++k) {
      const Real v = stream.values(token, static_cast<Index>(k));
      (is_kept ? kept_sum : evicted_sum)[k] += exact.p[j] * v;
      norm += v * v;
    }
    largest_value = std::max(largest_value, std::sqrt(norm));
    if (is_kept) rho += exact.p[j];
  }
  Real error = 0;
  for (std::size_t k = 0; k < dv; ++k) {
    const Real mean_kept = kept_sum[k] / rho;
    const Real mean_evicted = rho < 1 ? evicted_sum[k] / (1 - rho) : 0;
    const Real difference = estimate.answer[k] - exact.a[k];
    if (!(std::fabs(difference - (1 - rho) * (mean_kept - mean_evicted)) < 1e-10L)) {
      return "z - o is not (1 - rho)(mean of the kept - mean of the evicted)";
    }
    error += difference * difference;
  }
  if (std::sqrt(error) > 2 * (1 - rho) * largest_value + 1e-12L) return "beyond the bound";
  if (!estimate.kept_mass || !estimate.kl_divergence) return "no mass";
  if (std::fabs(*estimate.kept_mass - static_cast<double>(rho)) >= 1e-12) return "another mass";
  if (std::fabs(*estimate.kl_divergence + static_cast<double>(std::log(rho))) >= 1e-10) {
    return "another divergence";
  }
  // No set of as many tokens has more mass than the true top ones of this head.
  std::vector<Real> sorted(exact.p);
  std::sort(sorted.rbegin(), sorted.rend());
  Real best = exact.sink / exact.z;
  for (std::size_t j = 0; j < kept.size(); ++j) best += sorted[j];
  return rho <= best + 1e-15L ? "" : "more mass than the top tokens";
}

TEST_CASE(
    "z - o = (1 - rho)(mean of the kept - mean of the evicted) for every unweighted evictor") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 50, .d = 5, .dv = 7, .heads_per_kv = 2, .query_size = 2},
      {.tokens = 50, .d = 5, .dv = 3, .heads_per_kv = 1, .window = 23},
      {.tokens = 50, .d = 4, .dv = 4, .heads_per_kv = 3, .softcap = 3.0, .query_size = 3},
      {.tokens = 50, .d = 4, .dv = 4, .heads_per_kv = 1, .kind = StreamKind::kClustered},
      {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
      {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 22}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Evictor& evictor : evictors()) {
      CAPTURE(std::string(evictor.id));
      const AlgorithmDescription& algorithm = algorithm_named(evictor.id);
      Stepper stepper(owned->stream, 30, algorithm, params_for(algorithm, evictor.given), 7);
      while (stepper.next()) {
        for (const SketchRow& row : stepper.sketch().rows()) {
          REQUIRE(row.w_num == 1.0);
          REQUIRE(row.w_den == 1.0);
        }
        for (int g = 0; g < spec.heads_per_kv; ++g) {
          CHECK(error_of_answer(owned->stream, g, stepper.row(), stepper.sketch()) == "");
        }
      }
    }
  }
}

TEST_CASE("the identity turns red on weights, on sums over other tokens and on lost tokens") {
  const auto owned = make_stream({.tokens = 50, .d = 5, .dv = 7, .query_size = 2});
  const AlgorithmDescription& window = algorithm_named("window");
  Stepper stepper(owned->stream, 40, window,
                  params_for(window, {{"budget", Value{std::int64_t{12}}}}));
  REQUIRE(stepper.next());
  const auto problem = [&](const std::function<void(Sketch&)>& bug) {
    Sketch sketch = stepper.sketch();
    bug(sketch);
    return error_of_answer(owned->stream, 0, 40, sketch);
  };
  const std::string identity = "z - o is not (1 - rho)(mean of the kept - mean of the evicted)";
  CHECK(problem([](Sketch&) {}) == "");
  CHECK(problem([](Sketch& sketch) { sketch.set_weights(3, 1.0 + 1e-6, 1.0 + 1e-6); }) == identity);
  // Not normalised over the kept tokens, and a token that counts twice.
  CHECK(problem([](Sketch& sketch) { sketch.exact_denominator = true; }) == identity);
  CHECK(problem([](Sketch& sketch) { sketch.add_exact(35, 36); }) == identity);
}

TEST_CASE("oracle_topk keeps at least the mass of any evictor that holds as many tokens") {
  const auto owned = make_stream({.tokens = 50, .d = 5, .dv = 7, .query_size = 3});
  const AlgorithmDescription& oracle = algorithm_named("oracle_topk");
  const AlgorithmDescription& h2o = algorithm_named("h2o");
  // h2o answers over budget + 1 tokens.
  const auto best = sketches(owned->stream, 30, oracle,
                             params_for(oracle, {{"budget", Value{std::int64_t{10}}}}));
  const auto other =
      sketches(owned->stream, 30, h2o, params_for(h2o, {{"budget", Value{std::int64_t{9}}}}));
  for (std::size_t r = 0; r < best.size(); ++r) {
    const Index row = 30 + static_cast<Index>(r);
    CHECK(other[r].size() == 10);
    CHECK(*library_answer(owned->stream, 0, row, best[r]).kept_mass >=
          *library_answer(owned->stream, 0, row, other[r]).kept_mass - 1e-15);
  }
}

}  // namespace eviction_identity_test
}  // namespace kvbench::test
