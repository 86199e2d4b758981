// Where the conformance suite tries each algorithm: points made from its parameter table, and a row
// in points.cpp, or in a file of rows next to it, where an algorithm promises more than every
// algorithm does.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {

// Prompts that a stream is replayed with: none, half of it, all but a token; all of it, where every
// row sees every token.
inline std::vector<Index> prompts_of(const StreamSpec& spec) {
  if (!spec.causal) return {spec.tokens};
  return {0, spec.tokens / 2, spec.tokens - 1};
}

using Given = std::vector<std::pair<std::string, Value>>;

// Tokens that must be kept when row `row` of a stream with this shape is answered.
using MustHold = std::function<std::vector<Index>(const StreamShape&, Index prompt, Index row)>;

struct Point {
  Given given;
  // How many tokens (memory.tokens) may at most be kept at a row's answer; for a method of fixed
  // size also exactly. None: no promise by number.
  std::function<Index(const StreamShape&, Index prompt, Index row)> most_tokens;
  bool exactly = false;
  MustHold must_hold;
};

// Numbers that the paper's state holds besides keys and values: scores, counts, stored weights.
using Bookkeeping = std::function<Index(const Sketch&, const Params&, int heads_per_kv)>;

struct Conformance {
  std::string id;
  std::vector<Point> points;
  // Values of the general points in place of those that suit most algorithms; given by hand.
  Given general_values;
  // Parameters that must give exact attention on a stream of these tokens.
  std::function<std::vector<Given>(Index tokens)> exact_points;
  // Parameters resolved on the full stream, handed to a truncated one instead of those given.
  std::function<Given(const Given&, const Derived&)> resolved;
  // None: each row's weights that are neither 0 nor 1, equal ones once.
  Bookkeeping bookkeeping;
  bool looks_up = false;          // may store more than every token, to find what a row reads
  bool computes_weights = false;  // weights follow from what is booked; no row stores its own
};

// Rows written by hand.
const std::vector<Conformance>& conformance_table();
// Those of them that have files of their own.
std::vector<Conformance> merging_rows();
std::vector<Conformance> ranked_rows();
std::vector<Conformance> fitted_rows();
std::vector<Conformance> reading_rows();

// The points that follow from the parameter table alone: required parameters at small values, every
// word of every choice, both values of every flag, every exclusive alternative; exact where a
// budget covers the stream or T = 0; words (auto, oracle) resolved to the number of that name in
// `derived`.
Conformance general_row(const AlgorithmDescription& algorithm);

// Registry entry and conformance row together; the points are those by hand and the general ones.
struct Subject {
  const AlgorithmDescription* algorithm;
  const Conformance* row;
};
const std::vector<Subject>& subjects();

// "h2o {budget 12, group max}" for messages.
std::string describe(const std::string& id, const Given& given);

// Which cases of a test ran, so that one whose every case is skipped does not pass.
class Cases {
 public:
  // Whether the case runs: whether nothing keeps the algorithm from this stream and prompt.
  bool runs(const Subject& subject, const Given& given, const Params& params,
            const StreamShape& shape, Index prompt);
  // CHECKs that each point asked for ran at least once, and that every algorithm was asked for but
  // `not_asked`.
  void check_all_ran(const std::set<std::string>& not_asked = {}) const;

 private:
  std::map<std::string, Index> ran_;  // by describe()
  std::set<std::string> asked_;       // ids
};

}  // namespace kvbench::test
