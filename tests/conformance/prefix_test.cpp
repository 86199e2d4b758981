// 2. The state at row i is a function of tokens <= i.
#include <doctest/doctest.h>

#include "conformance/points.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace prefix_test {

struct Run {
  std::vector<Sketch> sketches;
  Derived derived;
};

Run run(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
        const Given& given) {
  Run out;
  Stepper stepper(stream, prompt, algorithm, params_for(algorithm, given), 11);
  while (stepper.next()) out.sketches.push_back(stepper.sketch());
  out.derived = stepper.algorithm().derived();
  return out;
}

TEST_CASE("truncating the stream after row i, or changing later tokens, changes nothing at row i") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 48, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 2, .rope_pairs = 2},
      {.tokens = 48, .d = 4, .dv = 3, .window = 19},
      {.tokens = 48, .d = 3, .dv = 3, .kind = StreamKind::kClustered},
      {.tokens = 48, .d = 4, .dv = 3, .heads_per_kv = 2, .sinks = true, .alibi = true},
      {.tokens = 48, .d = 4, .dv = 3, .chunk = 11}};
  const Index prompt = 24;
  Cases cases;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        CAPTURE(describe(subject.row->id, point.given));
        const Params params = params_for(*subject.algorithm, point.given);
        if (!cases.runs(subject, point.given, params, owned->stream.shape, prompt)) continue;
        const Run full = run(owned->stream, prompt, *subject.algorithm, point.given);
        const Given resolved = subject.row->resolved(point.given, full.derived);
        for (const Index row : {24, 25, 31, 32, 40, 46}) {
          CAPTURE(row);
          const Sketch& expected = full.sketches[row - prompt];
          const auto cut = truncated(owned->stream, row + 1);
          CHECK(same_sketch(run(cut->stream, prompt, *subject.algorithm, resolved).sketches.back(),
                            expected));
          const auto changed = with_other_future(owned->stream, row + 1, 5);
          const Run other = run(changed->stream, prompt, *subject.algorithm, resolved);
          CHECK(same_sketch(other.sketches[row - prompt], expected));
        }
      }
    }
  }
  cases.check_all_ran();
}

}  // namespace prefix_test
}  // namespace kvbench::test
