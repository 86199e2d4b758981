// The algorithm interface: an algorithm decides which weighted rows are kept at which time. The
// shared estimator turns its sketch and a query into an answer; nothing else is its business.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "algorithms/shared_work.hpp"
#include "core/calibration.hpp"
#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "parameters/parameters.hpp"
#include "parameters/struct_function.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

// Everything that a replay of one cell may look at.
struct CellContext {
  const Stream& stream;
  Index prompt;  // P: tokens [0, P) are the prompt
  std::uint32_t seed;
  const Kernels& kernels;
  const SharedResults& shared;
  // Rows that will be scored, for `derived` alone (r = max ||scale q|| runs over them); may be
  // null.
  const std::vector<Index>* scored_rows = nullptr;
};

// Scope of an algorithm's decisions. Cells are per KV head all the same: one whose scope is a
// layer, or the model, makes its decisions once for all selected KV heads of the layer, or of all
// selected layers, as model work, and each cell then follows them on its own stream.
enum class ReplayScope { kHead, kLayer, kModel };

// The logits of one decode row, for algorithms that score: of all visible tokens [lo, end), with
// exponentials e = exp(x - max) next to them, or of the tokens that can be kept alone.
struct RowLogits {
  Index row = 0;
  Index lo = 0;
  Index end = 0;  // row + 1, if the stream is causal
  int heads_per_kv = 1;
  const double* x = nullptr;
  const double* e = nullptr;             // null if only kept tokens have logits
  const double* max = nullptr;           // likewise
  Index stride = 0;                      // elements between query heads in x and e
  const std::int32_t* column = nullptr;  // by token: its place in x; null: the token itself
  const double* sinks = nullptr;         // [G] Stream::sinks; null: none

  const double* exps(int g) const { return e + g * stride; }
  // Logit of a token kept at this row.
  double logit(int g, Index token) const {
    return x[g * stride + (column == nullptr ? token : column[token])];
  }
  // Logit of the query head's sink; -infinity without one.
  double sink(int g) const {
    return sinks == nullptr ? -std::numeric_limits<double>::infinity() : sinks[g];
  }
};

// (name, value) pairs that go into the record under `derived`; a list of numbers is a value too.
using DerivedValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>>;
using Derived = std::vector<std::pair<std::string, DerivedValue>>;

// Derived value of cells with a calibration file: whether the file was made from the cell's text,
// too (Calibration::has_text).
inline constexpr const char* kCalibratedOnText = "calibrated_on_text";

// Meaning of a derived value.
struct DerivedKey {
  std::string name;
  std::string definition;  // one line, with its unit if it has one
};

struct Clusters {
  Index final_count = 0;
  std::vector<std::pair<Index, Index>> trajectory;  // (row, clusters after it)
};

struct Counters {
  // Steps of a balancing walk whose p left [0, 1] and was clamped: of the walk that the theory has,
  // BalanceKV's FAIL.
  Index clamped = 0;
};

// Promise of a theorem for a cell: `metric`, at row n - 1 and each query head, is at most epsilon.
struct Promise {
  std::string metric;             // its path, "errors.epsilon_spectral"
  std::optional<double> epsilon;  // none: sizes were given, and nothing is promised
  bool vacuous = false;           // by its sizes alone
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // Tokens [first, last) arrive, in order and without gaps, in blocks of any size; a block never
  // spans the end of the prompt. Tokens that left the sliding window are dropped first.
  virtual void extend(Index first, Index last) = 0;
  // The prompt is over (also where P = 0): methods that compress once do it here.
  virtual void finish_prompt() {}
  // Before row `row.row` is answered (its token was fed): only for Needs::row_logits. Prompt rows
  // are prepared only where they are scored.
  virtual void prepare(const RowLogits& row) { static_cast<void>(row); }
  // After it was answered: only for Needs::row_logits, and no prompt row.
  virtual void answered(const RowLogits& row) { static_cast<void>(row); }

  const Sketch& sketch() const { return sketch_; }
  virtual Derived derived() const { return {}; }
  virtual std::optional<Clusters> clusters() const { return std::nullopt; }
  virtual Counters counters() const { return {}; }
  // With one, the cell's record has `derived.vacuous`: by the sizes, or because an answer without
  // any method keeps the promise as well.
  virtual std::optional<Promise> promise() const { return std::nullopt; }

 protected:
  Sketch sketch_;
};

// Why what a parameter names does not go with a stream, as a clause: its cell is skipped, or the
// sweep is wrong.
struct Misfit {
  enum class Kind { kSkip, kError };
  std::string parameter;
  std::string clause;
  Kind kind = Kind::kSkip;
};

struct Needs {
  bool row_logits = false;        // calls prepare() and answered() at every decode row
  bool kept_tokens_only = false;  // uses only answered()'s logits, of tokens in the sketch
  bool prompt_queries = false;    // needs the queries of all prompt rows
  bool positions = false;         // turns keys back by the positions of their tokens
};

// A budget of a prompt's tokens, and the first and last of them that count in it and always stay.
struct BudgetParts {
  Index budget = 0;
  Index sinks = 0;
  Index recent = 0;
};

// A sketch row, in a list that grew by doubling.
inline constexpr double kSketchRowBytes = 2.0 * sizeof(SketchRow);
// Bytes of a vector of a sketch's own, besides its numbers.
inline constexpr double kVectorBytes = 48.0;

// Bytes of host memory that a cell takes at most besides the sketch rows of plain tokens.
struct CellMemory {
  double held = 0.0;     // from its first row to its last: tables per token, matrices
  double working = 0.0;  // more at one time, copies of the stream's vectors included
};

// Facts of an algorithm known beforehand, as functions of its parameters: of Params in an
// AlgorithmDescription, of the algorithm's own struct where it is written (typed_algorithm.hpp).
template <class P>
struct AlgorithmFunctions {
  // Whether the seed matters; empty: it does not.
  FunctionOf<P, bool()> randomised;
  FunctionOf<P, Needs()> needs;  // empty: nothing
  // A combination that no dump could satisfy: (parameter, clause) reported when the sweep is read.
  FunctionOf<P, std::optional<std::pair<std::string, std::string>>()> validate;
  // Why it cannot run on such a stream with this prompt; the cell is skipped with that reason.
  FunctionOf<P, std::optional<std::string>(const StreamShape&, Index prompt)> skip_reason;
  // Misfit of a KV head with what the parameters name; empty if they name nothing.
  FunctionOf<P, std::optional<Misfit>(const StreamId&, const StreamShape&, Index prompt)> misfit;
  FunctionOf<P, std::vector<SharedWork>(const StreamShape&, Index prompt, std::uint32_t seed)>
      shared_work;
  FunctionOf<P, ReplayScope()> replay_scope;  // empty: a KV head
  // Only for scopes beyond a KV head.
  FunctionOf<P, ModelWork(std::uint32_t seed)> model_work;
  // Numbers of one KV head that other texts can give, for calibration files; empty: the method is
  // not calibrated. Throws CellError if the texts have none.
  FunctionOf<P, CalibratedNumbers(const CalibrationTexts&)> calibrate;
  FunctionOf<P, std::unique_ptr<Algorithm>(const CellContext&)> create;
  // The most that is kept when a decode row is answered, if shape, prompt and parameters decide it;
  // grows with the budget up to one that keeps everything. It solves {"memory": F}: if it is empty,
  // what is kept never follows from the parameters.
  FunctionOf<P, std::optional<KeptCounts>(const StreamShape&, Index prompt)> most_kept;
  // Why what it keeps cannot be written down as rows of tokens and vectors; none if it can.
  FunctionOf<P, std::optional<std::string>()> not_rows;
  // Drops nothing after the prompt but what leaves a sliding window.
  FunctionOf<P, bool()> only_appends;
  // Why its cache cannot be written by a codec (lib/storage); none if it can.
  FunctionOf<P, std::optional<std::string>()> not_stored;
  // Keeps values that it makes itself in place of tokens' own ones: no codec that writes values of
  // several tokens together goes with it.
  FunctionOf<P, bool()> makes_values;
  // Keeps tokens with weights other than 1: they stand for others too.
  FunctionOf<P, bool()> weighs;
  // Parts of a prompt of which it ranks the middle once, by a score of each token
  // (CompressOnce::scores): the method may be made to keep whole pages, and the same tokens in
  // several KV heads (mechanisms/paging.hpp). Empty: it ranks otherwise, or not at all.
  FunctionOf<P, BudgetParts(const StreamShape&, Index prompt)> ranks;
  // Why it does not rank so with these parameters; none if it does.
  FunctionOf<P, std::optional<std::string>()> not_ranked;
  // Keeps every token for good, whatever it attends to: memory is that of `exact`.
  FunctionOf<P, bool()> never_evicts;
  // Empty: none, nor more than copies of all keys and values. Vectors of its own that `most_kept`
  // counts need not be part of it (`makes_values`).
  FunctionOf<P, CellMemory(const StreamShape&, Index prompt)> memory;
};

// Reasons, as clauses, why an algorithm does not run with what a model may have besides scale,
// soft-cap and window; empty: it runs.
struct ModelLimits {
  std::string alibi;       // a bias of the logits that grows with the distance
  std::string all_tokens;  // every row sees every token: all are the prompt, no row is decoded
};

// Facts of an algorithm whatever its parameters.
struct AlgorithmFacts {
  std::string id;
  std::vector<std::string> aliases;
  std::string title;   // one line
  std::string source;  // paper, equation or section
  std::vector<ExactlyOneOf> exactly_one_of;
  std::string for_less_memory;      // without a parameter that takes {"memory": F}: what to change
  std::vector<DerivedKey> derived;  // every name that Algorithm::derived() can have
  std::vector<std::string> calibration_params;  // parameters that `calibrate` depends on
  ModelLimits limits;
  // Whether rows of the prompt can be scored: after extend() up to its token, and prepare() if it
  // needs logits, the sketch answers such a row as it answers a decode row, as if no prompt were
  // there; fractions of the prompt in parameters keep their meaning.
  bool answers_prompt_rows = false;
  // With answers_prompt_rows: which tokens a row of the prompt reads depends on the whole prompt,
  // and a later row reads all of them, so that rows of the prompt alone are scored.
  bool masks_prompt = false;
  // Whether it keeps every token, and chooses by a row's query which it reads: then it may read
  // what another method kept (composition.hpp).
  bool reads = false;
  // With `ranks`: the largest scope whose KV heads keep equally many tokens.
  ReplayScope equal_budgets = ReplayScope::kModel;

  AlgorithmFacts();
  AlgorithmFacts(const AlgorithmFacts&);
  AlgorithmFacts(AlgorithmFacts&&) noexcept;
  AlgorithmFacts& operator=(const AlgorithmFacts&);
  AlgorithmFacts& operator=(AlgorithmFacts&&) noexcept;
  ~AlgorithmFacts();
};

// All functions that may be asked of any algorithm have an answer here; `misfit`, `model_work`,
// `calibrate`, `create`, `most_kept` and `ranks` may be empty.
struct AlgorithmDescription : AlgorithmFacts, AlgorithmFunctions<Params> {
  std::vector<Parameter> parameters;
  // The two methods of a composition: one keeps, the other reads what it kept. Null otherwise.
  std::shared_ptr<const AlgorithmDescription> first, reader;

  AlgorithmDescription();
  AlgorithmDescription(const AlgorithmDescription&);
  AlgorithmDescription(AlgorithmDescription&&) noexcept;
  AlgorithmDescription& operator=(const AlgorithmDescription&);
  AlgorithmDescription& operator=(AlgorithmDescription&&) noexcept;
  ~AlgorithmDescription();
};

// Reason that keeps a cell from running whatever the algorithm: query rows that the dump does not
// hold.
std::optional<std::string> reason_to_skip(const AlgorithmDescription& algorithm,
                                          const Params& params, const StreamShape& shape,
                                          Index prompt);

}  // namespace kvbench
