// 3. Budgets hold at every step, sinks and recent tokens are always there, nothing returns.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "algorithms/registry.hpp"
#include "conformance/points.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace budgets_test {

bool holds_value_of(const Sketch& sketch, Index token) {
  return std::any_of(sketch.rows().begin(), sketch.rows().end(), [&](const SketchRow& row) {
    return row.token == token && row.keeps_value && row.w_num != 0.0 && row.w_den != 0.0;
  });
}

void check_point(const Stream& stream, Index prompt, const Subject& subject, const Point& point,
                 Cases& cases) {
  const Params params = params_for(*subject.algorithm, point.given);
  if (!cases.runs(subject, point.given, params, stream.shape, prompt)) return;
  Stepper stepper(stream, prompt, *subject.algorithm, params, 2);
  std::set<Index> before;
  std::set<Index> seen_gone;
  while (stepper.next()) {
    const Index row = stepper.row();
    CAPTURE(row);
    const Sketch& sketch = stepper.sketch();
    if (point.most_tokens) {
      const Index most = point.most_tokens(stream.shape, prompt, row);
      CHECK(sketch.kept_counts().tokens <= most);
      if (point.exactly) CHECK(sketch.kept_counts().tokens == most);
    }
    if (point.must_hold) {
      for (const Index token : point.must_hold(stream.shape, prompt, row)) {
        CAPTURE(token);
        CHECK(holds_value_of(sketch, token));
      }
    }
    const std::vector<Index> kept = kept_tokens(sketch);
    const Index lo = stream.shape.first_visible(row);
    for (const Index token : kept) {
      CHECK(token >= lo);  // tokens that left the sliding window are gone
      CHECK(token <= row);
    }
    if (subject.algorithm->never_evicts(params)) continue;
    const std::set<Index> now(kept.begin(), kept.end());
    for (const Index token : before) {
      if (now.count(token) == 0) seen_gone.insert(token);
    }
    for (const Index token : now) CHECK(seen_gone.count(token) == 0);
    // A prompt token that was not kept at the first decode row never appears.
    if (row > prompt) {
      for (const Index token : now) CHECK((before.count(token) == 1 || token == row));
    }
    before = now;
  }
}

struct Reading {
  bool ran = false;
  bool holds_again = false;  // a token that was kept and then was not is kept once more
  bool reads_latest = true;  // every row reads the latest tokens without gaps, and no others
};

Reading reading_of(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
                   const Params& params) {
  Reading out;
  if (reason_to_skip(algorithm, params, stream.shape, prompt)) return out;
  out.ran = true;
  std::set<Index> before;
  std::set<Index> gone;
  Stepper stepper(stream, prompt, algorithm, params, 2);
  while (stepper.next()) {
    const std::vector<Index> kept = kept_tokens(stepper.sketch());
    const std::set<Index> now(kept.begin(), kept.end());
    for (const Index token : before) {
      if (now.count(token) == 0) gone.insert(token);
    }
    for (const Index token : now) out.holds_again = out.holds_again || gone.count(token) == 1;
    out.reads_latest = out.reads_latest && !kept.empty() && kept.back() == stepper.row() &&
                       kept.back() - kept.front() + 1 == std::ssize(kept);
    before = now;
  }
  return out;
}

std::vector<StreamSpec> specs() {
  return {{.tokens = 60, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 3},
          {.tokens = 60, .d = 4, .dv = 3, .window = 21, .query_size = 2},
          {.tokens = 60, .d = 4, .dv = 3, .query_size = 3, .rope_pairs = 2},
          {.tokens = 60, .d = 2, .dv = 2, .kind = StreamKind::kTies},
          {.tokens = 60, .d = 2, .dv = 2, .kind = StreamKind::kEqualKeys}};
}

TEST_CASE("every registered algorithm is tried, and every row by hand belongs to one") {
  std::set<std::string> registered;
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    CAPTURE(algorithm.id);
    CHECK(registered.insert(algorithm.id).second);
  }
  std::set<std::string> tried;
  for (const Subject& subject : subjects()) {
    CAPTURE(subject.row->id);
    CHECK(tried.insert(subject.row->id).second);
    CHECK(!subject.row->points.empty());
  }
  CHECK(tried == registered);
  for (const Conformance& row : conformance_table()) CHECK(registered.count(row.id) == 1);
}

// All others are seen below never to hold a token again. Parameters that read all that is visible,
// or the last of it, give nothing to see, but those of no algorithm all do. A mask of prompt rows
// leaves nothing out in later rows.
TEST_CASE("what says that it drops nothing for good is seen to hold a token again") {
  std::vector<std::unique_ptr<OwnedStream>> streams;
  for (const StreamSpec& spec : specs()) streams.push_back(make_stream(spec));
  std::map<std::string, bool> again;  // by algorithm: whether some point holds a token again
  for (const Subject& subject : subjects()) {
    for (const Point& point : subject.row->points) {
      const Params params = params_for(*subject.algorithm, point.given);
      if (!subject.algorithm->never_evicts(params) || subject.algorithm->masks_prompt) continue;
      bool ran = false;
      bool holds_again = false;
      bool reads_latest = true;
      for (const auto& owned : streams) {
        const Reading seen = reading_of(owned->stream, 30, *subject.algorithm, params);
        ran = ran || seen.ran;
        holds_again = holds_again || seen.holds_again;
        reads_latest = reads_latest && seen.reads_latest;
      }
      CAPTURE(describe(subject.row->id, point.given));
      CHECK(ran);
      CHECK((holds_again || reads_latest));
      again[subject.row->id] = again[subject.row->id] || holds_again;
    }
  }
  CHECK(again.size() > 5);
  for (const auto& [id, seen] : again) {
    CAPTURE(id);
    CHECK(seen);
  }
}

TEST_CASE("budgets, sinks and recent tokens hold at every step, and no token returns") {
  Cases cases;
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(spec);
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        for (const Index prompt : {0, 2, 30}) {
          CAPTURE(describe(subject.row->id, point.given));
          CAPTURE(prompt);
          CAPTURE(spec.window);
          check_point(owned->stream, prompt, subject, point, cases);
        }
      }
    }
  }
  cases.check_all_ran();
}

}  // namespace budgets_test
}  // namespace kvbench::test
