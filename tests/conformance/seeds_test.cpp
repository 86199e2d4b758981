// 5. Same seed, same bytes; another seed differs only where the algorithm is randomised.
#include <doctest/doctest.h>

#include <string>

#include "conformance/points.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace seeds_test {

bool all_same(const std::vector<Sketch>& a, const std::vector<Sketch>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t r = 0; r < a.size(); ++r) {
    if (!same_sketch(a[r], b[r])) return false;
  }
  return true;
}

TEST_CASE("a seed repeats itself, and matters exactly where an algorithm says so") {
  const auto owned = make_stream(
      {.tokens = 60, .d = 4, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2, .repeated = 40});
  for (const Subject& subject : subjects()) {
    for (const Point& point : subject.row->points) {
      CAPTURE(describe(subject.row->id, point.given));
      const Params params = params_for(*subject.algorithm, point.given);
      const auto one = sketches(owned->stream, 40, *subject.algorithm, params, 1);
      CHECK(all_same(one, sketches(owned->stream, 40, *subject.algorithm, params, 1)));
      bool differs = false;
      for (const std::uint32_t seed : {2U, 3U, 4U, 5U, 6U}) {
        differs = differs ||
                  !all_same(one, sketches(owned->stream, 40, *subject.algorithm, params, seed));
      }
      CHECK(differs == subject.algorithm->randomised(params));
    }
  }
}

TEST_CASE("draws belong to a stream: another layer, head or sequence draws anew") {
  const auto owned = make_stream({.tokens = 60, .d = 4, .dv = 3, .rope_pairs = 2, .repeated = 40});
  for (const Subject& subject : subjects()) {
    for (const Point& point : subject.row->points) {
      const Params params = params_for(*subject.algorithm, point.given);
      if (!subject.algorithm->randomised(params)) continue;
      CAPTURE(describe(subject.row->id, point.given));
      const StreamId identity = owned->stream.id;
      const auto one = sketches(owned->stream, 40, *subject.algorithm, params, 1);
      // A nearly deterministic walk may meet itself once, but not for five names in a row.
      for (const char* part : {"sequence", "layer", "head"}) {
        CAPTURE(std::string(part));
        bool differs = false;
        for (int other = 1; other <= 5; ++other) {
          owned->stream.id = identity;
          if (part[0] == 's') owned->stream.id.sequence += std::to_string(other);
          if (part[0] == 'l') owned->stream.id.layer = other;
          if (part[0] == 'h') owned->stream.id.kv_head = other;
          differs =
              differs || !all_same(one, sketches(owned->stream, 40, *subject.algorithm, params, 1));
        }
        // But for hash planes that are asked for as the same everywhere.
        const Value* planes = params.find("planes");
        CHECK(differs == (planes == nullptr || *planes != Value{std::string("shared")}));
      }
      owned->stream.id = identity;
    }
  }
}

}  // namespace seeds_test
}  // namespace kvbench::test
