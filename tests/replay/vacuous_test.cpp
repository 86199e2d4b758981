// A promised epsilon that an answer without any method reaches too promises nothing.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <variant>

#include "support/algorithm_named.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace vacuous_test {

// `derived` of subgen with radius 0, and whatever else is given.
Derived derived_of(const Stream& stream, const Given& given, const std::vector<Index>& rows) {
  const AlgorithmDescription& algorithm = algorithm_named("subgen");
  Given all = {{"delta", number(0.0)}};
  all.insert(all.end(), given.begin(), given.end());
  return replay_one(stream, rows.front(), algorithm, params_for(algorithm, all), 0, rows).derived;
}

bool is_vacuous(const Stream& stream, const Given& given, const std::vector<Index>& rows) {
  for (const auto& [name, value] : derived_of(stream, given, rows)) {
    if (name == "vacuous") return std::get<bool>(value);
  }
  FAIL("no derived.vacuous");
  return false;
}

// 4000 tokens of two keys; one in eight has the key that the query looks for, and the value 1, the
// others the value 0. So a is 1 to within 1e-8, ||p|| ||V|| = 1, and the mean value is 1/8: epsilon
// of the answer 0 is 1, that of the mean 7/8.
std::unique_ptr<OwnedStream> one_in_eight(const std::vector<Rows>& queries = {Rows(4000, {20.0})}) {
  Rows keys;
  Rows values;
  for (int j = 0; j < 4000; ++j) {
    keys.push_back({j % 8 == 0 ? 1.0 : 0.0});
    values.push_back({j % 8 == 0 ? 1.0 : 0.0});
  }
  return stream_of(keys, values, queries);
}

TEST_CASE("a promise is vacuous from what the better trivial answer reaches on") {
  const auto owned = one_in_eight();
  // s = 1800 / epsilon^2 and t = 1 are fewer vectors than the cache has in each of these.
  for (const double epsilon : {0.7, 0.87, 0.88, 0.95, 1.0}) {
    CAPTURE(epsilon);
    CHECK(is_vacuous(owned->stream, {{"epsilon", number(epsilon)}}, {3999}) == (epsilon > 0.875));
  }
}

TEST_CASE("a promise is vacuous if its sizes are no fewer vectors than the cache") {
  // 2 (1 + 1) + 2 s < 8000 from epsilon = 0.6712 on.
  const auto owned = one_in_eight();
  CHECK(is_vacuous(owned->stream, {{"epsilon", number(0.67)}}, {3999}));
  CHECK(!is_vacuous(owned->stream, {{"epsilon", number(0.68)}}, {3999}));
}

TEST_CASE("where the mean value is the answer, no promise says anything") {
  const Rows same(4000, {1.0});
  const auto owned = stream_of(same, same, {same});
  CHECK(is_vacuous(owned->stream, {{"epsilon", number(1.0)}}, {3999}));
  // Without row n - 1, of which the theorem speaks, only the sizes are known.
  CHECK(!is_vacuous(owned->stream, {{"epsilon", number(1.0)}}, {3998}));
}

TEST_CASE("a promise is vacuous where one query head's trivial answer reaches it, in any order") {
  // A query of 0 sees all tokens alike, so that the mean value is its answer. The other is that of
  // one_in_eight(), whose trivial answers are above 0.7.
  const Rows even(4000, {0.0});
  const Rows keen(4000, {20.0});
  const Given epsilon = {{"epsilon", number(0.7)}};
  CHECK(!is_vacuous(one_in_eight({keen, keen})->stream, epsilon, {3999}));
  CHECK(is_vacuous(one_in_eight({even, keen})->stream, epsilon, {3999}));
  CHECK(is_vacuous(one_in_eight({keen, even})->stream, epsilon, {3999}));
}

TEST_CASE("draws that the theorem is not proved for promise nothing, and say so") {
  const auto owned = one_in_eight();
  for (const char* sampling : {"uniform", "k2", "v1", "v2"}) {
    CAPTURE(sampling);
    const bool proved = std::string(sampling) == "v2";
    const Given given = {{"epsilon", number(0.7)}, {"sampling", Value{std::string(sampling)}}};
    CHECK(is_vacuous(owned->stream, given, {3999}) == !proved);
    const Derived derived = derived_of(owned->stream, given, {3999});
    int said = 0;
    for (const auto& [name, value] : derived) {
      if (name == "promised_epsilon_spectral")
        CHECK(std::isnan(std::get<double>(value)) == !proved);
      if (name == "epsilon_effective") CHECK(std::isnan(std::get<double>(value)) == !proved);
      if (name == "no_promise") ++said;
    }
    CHECK(said == (proved ? 0 : 1));
  }
}

TEST_CASE("without an epsilon nothing was promised") {
  const Rows same(40, {1.0});
  const auto owned = stream_of(same, same, {same});
  CHECK(!is_vacuous(owned->stream, {{"t", count_of(1)}, {"s", count_of(5000)}}, {39}));
}

}  // namespace vacuous_test
}  // namespace kvbench::test
