// The algorithm interface: an algorithm decides which weighted rows are held at which time. The
// shared estimator turns its sketch and a query into an answer; nothing else is its business.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "algorithms/parameters.hpp"
#include "core/error.hpp"
#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/row_block.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

// Work that several cells of a group share (a prompt's score sums serve every budget, a clustering
// every t, s and seed): computed once per key before any cell that names it.
class SharedResults {
 public:
  // Throws CellError with the reason where the work failed: then its cells fail, no others.
  template <class T>
  const T& get(const std::string& key) const {
    const auto failure = failures_.find(key);
    if (failure != failures_.end()) throw CellError(failure->second);
    return std::any_cast<const T&>(results_.at(key));
  }
  void put(const std::string& key, std::any result) { results_[key] = std::move(result); }
  void fail(const std::string& key, std::string reason) { failures_[key] = std::move(reason); }
  bool has(const std::string& key) const {
    return results_.count(key) != 0 || failures_.count(key) != 0;
  }

 private:
  std::map<std::string, std::any> results_;
  std::map<std::string, std::string> failures_;
};

// Everything that a replay of one cell may look at.
struct Setting {
  const Stream& stream;
  Index prompt;  // P: tokens [0, P) are the prompt
  const Params& params;
  std::uint32_t seed;
  const Kernels& kernels;
  const SharedResults& shared;
  // Rows that will be scored, for `derived` alone (r = max ||scale q|| runs over them); may be
  // null.
  const std::vector<Index>* scored_rows = nullptr;
};

// What shared work may look at.
struct SharedSetting {
  const Stream& stream;
  Index prompt;
  const Kernels& kernels;
  // Rows that will be scored, for `derived` alone; null: every row with a stored query.
  const std::vector<Index>* scored_rows = nullptr;
  // What is known of these rows already; null: to be computed where wanted.
  const RowBlock* scored_logits = nullptr;
  const std::vector<double>* value_spectral = nullptr;  // ||V_i||_op
};

struct SharedWork {
  std::string key;
  std::function<std::any(const SharedSetting&)> compute;
  double bytes = 0.0;  // memory of the result, beside some numbers per token
  // Set where the work is a prompt's scores by this rule (its result ScoreSums): those of a group
  // are computed in one reading of the logits, instead of one `compute` each.
  std::function<ScoreRule(const Stream&)> prompt_rule = {};
};

// What an algorithm is replayed on. Cells are per KV head all the same: a model-scoped algorithm
// makes its decisions once for all layers and heads of its scope, as model work, and each cell then
// follows them on its own stream.
enum class ReplayUnit { kHead, kModel };

// What model work may look at: every stream of the scope, one at a time, in a fixed order, as often
// as wanted; all have the same tokens and hold every query.
struct ModelSetting {
  std::function<void(const std::function<void(const Stream&)>&)> for_each_stream;
  Index prompt;
  Index tokens;
  const Kernels& kernels;
};

struct ModelWork {
  std::string key;  // its result reaches the cells of the scope through SharedResults
  std::function<std::any(const ModelSetting&)> compute;
  // Memory that computing it takes at most, beside the stream at hand, for so many query heads.
  std::function<double(Index heads, Index prompt, Index tokens)> bytes;
};

// The logits of one decode row, for algorithms that score: of all visible tokens [lo, row], with
// exponentials e = exp(x - max) beside them, or of the tokens that can be held alone.
struct RowLogits {
  Index row = 0;
  Index lo = 0;
  int group = 1;
  const double* x = nullptr;
  const double* e = nullptr;             // null where only held tokens have logits
  const double* max = nullptr;           // likewise
  Index stride = 0;                      // elements between query heads in x and e
  const std::int32_t* column = nullptr;  // by token: its place in x; null: the token itself

  const double* exps(int g) const { return e + g * stride; }
  // Of tokens held at this row.
  double logit(int g, Index token) const {
    return x[g * stride + (column == nullptr ? token : column[token])];
  }
};

// (name, value) pairs that go into the record under `derived`; a list of numbers is a value too.
using DerivedValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>>;
using Derived = std::vector<std::pair<std::string, DerivedValue>>;

struct Clusters {
  Index final_count = 0;
  std::vector<std::pair<Index, Index>> trajectory;  // (row, clusters after it)
};

struct Counters {
  Index fail = 0;     // BalanceKV's FAIL: steps of a walk of the theory whose p left [0, 1]
  Index clamped = 0;  // the same of any walk: p was clamped
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // Tokens [first, last) arrive, in order and without gaps, in blocks of any size; a block never
  // spans the end of the prompt. Tokens that left the sliding window are dropped first.
  virtual void extend(Index first, Index last) = 0;
  // The prompt is over (also where P = 0): methods that compress once do it here.
  virtual void finish_prompt() {}
  // Before row `row.row` is answered (its token was fed): only for Needs::row_logits.
  virtual void prepare(const RowLogits& row) { static_cast<void>(row); }
  // After it was answered: only for Needs::row_logits.
  virtual void answered(const RowLogits& row) { static_cast<void>(row); }

  const Sketch& sketch() const { return sketch_; }
  virtual Derived derived() const { return {}; }
  virtual std::optional<Clusters> clusters() const { return std::nullopt; }
  virtual Counters counters() const { return {}; }

 protected:
  Sketch sketch_;
};

struct Needs {
  bool row_logits = false;      // calls prepare() and answered() at every decode row
  bool held_only = false;       // of logits only answered()'s, of tokens in the sketch, count
  bool prompt_queries = false;  // needs the queries of all prompt rows
};

struct AlgorithmDescription {
  std::string id;
  std::vector<std::string> aliases;
  std::string title;   // one line
  std::string source;  // paper, equation or section
  std::vector<Parameter> parameters;
  std::vector<Exclusive> exclusive;

  // Whether the seed matters.
  std::function<bool(const Params&)> randomised = [](const Params&) { return false; };
  std::function<Needs(const Params&)> needs = [](const Params&) { return Needs{}; };
  // A combination that no dump could satisfy: (parameter, clause) reported when the sweep is read.
  std::function<std::optional<std::pair<std::string, std::string>>(const Params&)> fault =
      [](const Params&) { return std::nullopt; };
  // Why it cannot run on such a stream with this prompt; the cell is skipped with that reason.
  std::function<std::optional<std::string>(const Params&, const StreamShape&, Index prompt)>
      skip_reason = [](const Params&, const StreamShape&, Index) { return std::nullopt; };
  std::function<std::vector<SharedWork>(const Params&, const StreamShape&, Index prompt,
                                        std::uint32_t seed)>
      shared_work = [](const Params&, const StreamShape&, Index, std::uint32_t) {
        return std::vector<SharedWork>{};
      };
  std::function<ReplayUnit(const Params&)> unit = [](const Params&) { return ReplayUnit::kHead; };
  // Only for ReplayUnit::kModel.
  std::function<ModelWork(const Params&, std::uint32_t seed)> model_work;
  std::function<std::unique_ptr<Algorithm>(const Setting&)> create;
  // Keeps every token for good, whatever it attends to: memory is that of `exact`.
  std::function<bool(const Params&)> keeps_everything = [](const Params&) { return false; };
};

// What keeps a cell from running whatever the algorithm: query rows that the dump does not hold.
std::optional<std::string> reason_to_skip(const AlgorithmDescription& algorithm,
                                          const Params& params, const StreamShape& shape,
                                          Index prompt);

}  // namespace kvbench
