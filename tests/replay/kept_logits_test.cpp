// Rows that are not scored: the h2o family computes kept tokens' logits alone there.
#include <doctest/doctest.h>

#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace kept_logits_test {

// Scored rows' errors and the memory of a cell whose other rows are, or are not, asked.
void check_same_decisions(const Stream& stream, Index prompt, const std::string& id,
                          const Given& given) {
  CAPTURE(stream.shape.window);
  CAPTURE(stream.shape.softcap);
  CAPTURE(prompt);
  CAPTURE(id);
  CAPTURE(given.size());
  const AlgorithmDescription& algorithm = algorithm_named(id);
  const Params params = params_for(algorithm, given);
  REQUIRE(algorithm.needs(params).kept_tokens_only);
  const Index n = stream.shape.tokens;
  const std::vector<Index> few = {prompt + 3, prompt + 70, n - 2};
  const CellResult slow = replay_one(stream, prompt, algorithm, params, 5);
  const CellResult fast = replay_one(stream, prompt, algorithm, params, 5, few);
  CHECK(fast.memory.tokens_peak == slow.memory.tokens_peak);
  CHECK(fast.memory.peak_bytes == slow.memory.peak_bytes);
  CHECK(fast.memory.tokens == slow.memory.tokens);
  const auto heads = static_cast<std::size_t>(stream.shape.heads_per_kv);
  for (std::size_t r = 0; r < few.size(); ++r) {
    for (std::size_t g = 0; g < heads; ++g) {
      CAPTURE(few[r]);
      const std::size_t at = g * few.size() + r;
      const std::size_t place =
          g * static_cast<std::size_t>(n - prompt) + static_cast<std::size_t>(few[r] - prompt);
      // The exact answers' last bits depend on the rows asked together.
      CHECK((*fast.row_values)["relative_l2"][at] ==
            doctest::Approx((*slow.row_values)["relative_l2"][place]).epsilon(1e-10));
      CHECK((*fast.row_values)["kept_mass"][at] ==
            doctest::Approx((*slow.row_values)["kept_mass"][place]).epsilon(1e-12));
    }
  }
}

TEST_CASE("rows that are not scored change no decision") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 260, .d = 7, .dv = 3, .heads_per_kv = 2, .query_size = 4},
      {.tokens = 260, .d = 5, .dv = 3, .window = 41, .query_size = 4},
      {.tokens = 260, .d = 5, .dv = 3, .softcap = 2.0, .query_size = 4},
      {.tokens = 260, .d = 5, .dv = 3, .query_size = 4, .rope_pairs = 2}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 90}) {
      for (const Index budget : {2, 25}) {
        const std::pair<std::string, Value> k{"budget", count_of(budget)};
        check_same_decisions(owned->stream, prompt, "h2o", {k});
        check_same_decisions(owned->stream, prompt, "key_attention",
                             {k, {"group", word_of("max")}});
        check_same_decisions(owned->stream, prompt, "keyformer", {k});
        check_same_decisions(owned->stream, prompt, "keyformer",
                             {k,
                              {"draw", word_of("row")},
                              {"damping", number(0.9)},
                              {"damping_form", word_of("old")}});
        if (spec.rope_pairs == 0) continue;
        check_same_decisions(owned->stream, prompt, "h2o", {k, {"positions", word_of("cache")}});
      }
    }
  }
}

}  // namespace kept_logits_test
}  // namespace kvbench::test
