// Work that several cells share: a prompt's score sums serve every budget, a clustering every t, s
// and seed. A kind of work is a struct whose members say all that its result depends on besides the
// stream, so that they are its key:
//
//   struct WindowScores {
//     Index window;
//     using Result = ScoreSums;
//     Result compute(const SharedContext& setting) const;
//     auto operator<=>(const WindowScores&) const = default;
//   };
//
// An algorithm names WindowScores{32} among its shared work and reads it back by the same key:
// `const ScoreSums& sums = setting.shared.get(WindowScores{32});`.
//
// A kind whose computing takes more memory at one time than a copy of all keys and values, its
// result aside, says how much:
//
//   double scratch(const StreamShape& shape, Index prompt) const;
//
// Numbers gathered over the scored rows, for `derived` alone, come later, from their logits while
// they pass through the cells. Such a kind has
//
//   void add_rows(const SharedContext& setting, const RowBlock& block, Result& result) const;
//
// which is called after compute() for blocks of rows, ascending; the scored ones among them count,
// and a cell's derived() is asked once all of them were there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/row_block.hpp"
#include "system/error.hpp"

namespace kvbench {

// Inputs of shared work.
struct SharedContext {
  const Stream& stream;
  Index prompt;
  const Kernels& kernels;
  // Rows that will be scored, for `derived` alone; null: every row with a stored query.
  const std::vector<Index>* scored_rows = nullptr;
  // ||V_i||_op of these rows; null: to be computed if wanted.
  const std::vector<double>* value_spectral = nullptr;
};

// Inputs of model work: every stream of the scope, by layer, then KV head, one at a time, as often
// as wanted; all have the same tokens, those of a layer the same shape.
struct ModelContext {
  std::function<void(const std::function<void(const Stream&)>&)> for_each_stream;
  Index prompt;
  Index tokens;
  const Kernels& kernels;
  bool in_memory = false;  // all streams are, so that another visit reads nothing
};

// A type of work. Types of one name in unnamed namespaces of two files are two kinds: by the
// address of something that each type has, since clang's std::type_index takes them for equal.
class WorkKind {
 public:
  template <class Work>
  static WorkKind of() {
    return {typeid(Work), &kPlace<Work>};
  }

  std::string name() const;  // as the source has it
  friend bool operator==(const WorkKind& a, const WorkKind& b) { return a.place_ == b.place_; }
  friend bool operator<(const WorkKind& a, const WorkKind& b) {
    return a.type_ != b.type_ ? a.type_ < b.type_ : std::less<>()(a.place_, b.place_);
  }

 private:
  template <class Work>
  static constexpr char kPlace = 0;

  WorkKind(std::type_index type, const void* place) : type_(type), place_(place) {}

  std::type_index type_;
  const void* place_;
};

// Any kind of work, ordered by kind and members.
class WorkKey {
 public:
  template <class Work>
  explicit WorkKey(const Work& work)
      : kind_(WorkKind::of<Work>()),
        work_(std::make_shared<const Work>(work)),
        less_([](const void* a, const void* b) {
          return *static_cast<const Work*>(a) < *static_cast<const Work*>(b);
        }) {}

  const WorkKind& kind() const { return kind_; }
  friend bool operator<(const WorkKey& a, const WorkKey& b) {
    return a.kind_ == b.kind_ ? a.less_(a.work_.get(), b.work_.get()) : a.kind_ < b.kind_;
  }

 private:
  friend class SharedWork;
  WorkKind kind_;
  std::shared_ptr<const void> work_;
  bool (*less_)(const void*, const void*);
};

// A result, or why there is none that is of use. Its key defines the type of the result.
struct WorkOutcome {
  std::shared_ptr<void> result;
  std::string failure;
};

// Work that the cells of a group share.
class SharedWork {
 public:
  template <class Work>
  // NOLINTNEXTLINE(google-explicit-constructor): a list of kinds is a list of work
  SharedWork(const Work& work)
      : key_(work), compute_([work](const SharedContext& context) {
          return std::make_shared<typename Work::Result>(work.compute(context));
        }) {
    if constexpr (requires { work.bytes(); }) bytes_ = work.bytes();
    if constexpr (requires { &Work::scratch; }) {
      scratch_ = [work](const StreamShape& shape, Index prompt) {
        return work.scratch(shape, prompt);
      };
    }
    if constexpr (requires { &Work::compute_all; }) compute_all_ = all_of<Work>;
    if constexpr (requires { &Work::add_rows; }) {
      add_rows_ = [work](const SharedContext& context, const RowBlock& block, void* result) {
        work.add_rows(context, block, *static_cast<typename Work::Result*>(result));
      };
    }
  }

  const WorkKey& key() const { return key_; }
  // Memory of the result, besides some numbers per token.
  double bytes() const { return bytes_; }
  // Memory that computing takes besides, copies of the stream's vectors included; 0: these alone.
  double scratch(const StreamShape& shape, Index prompt) const {
    return scratch_ ? scratch_(shape, prompt) : 0.0;
  }
  // Throws what the work throws.
  std::shared_ptr<void> compute(const SharedContext& context) const { return compute_(context); }

  // Whether it gathers something over the scored rows, and the next of them into its result.
  bool gathers_rows() const { return add_rows_ != nullptr; }
  void add_rows(const SharedContext& context, const RowBlock& block, void* result) const {
    add_rows_(context, block, result);
  }

  // Whether pieces of this kind cost less together than one by one: the kind has
  //   static std::vector<Result> compute_all(const SharedContext&, const std::vector<Work>&);
  //   static void check(const Result&);  // throws CellError if this piece alone is invalid
  bool is_batched() const { return compute_all_ != nullptr; }
  // An outcome for each of `pieces`, all of this batched kind.
  std::vector<WorkOutcome> compute_all(const SharedContext& context,
                                       const std::vector<SharedWork>& pieces) const {
    return compute_all_(context, pieces);
  }

 private:
  template <class Work>
  static std::vector<WorkOutcome> all_of(const SharedContext& context,
                                         const std::vector<SharedWork>& pieces) {
    std::vector<Work> works;
    for (const SharedWork& piece : pieces) {
      works.push_back(*static_cast<const Work*>(piece.key_.work_.get()));
    }
    std::vector<WorkOutcome> outcomes;
    for (typename Work::Result& result : Work::compute_all(context, works)) {
      WorkOutcome& outcome = outcomes.emplace_back();
      try {
        Work::check(result);
        outcome.result = std::make_shared<typename Work::Result>(std::move(result));
      } catch (const CellError& error) {
        outcome.failure = error.what();
      }
    }
    return outcomes;
  }

  WorkKey key_;
  std::function<std::shared_ptr<void>(const SharedContext&)> compute_;
  std::function<void(const SharedContext&, const RowBlock&, void*)> add_rows_;
  std::vector<WorkOutcome> (*compute_all_)(const SharedContext&,
                                           const std::vector<SharedWork>&) = nullptr;
  double bytes_ = 0.0;
  std::function<double(const StreamShape&, Index)> scratch_;  // empty: 0
};

// Sizes that the memory of model work depends on.
struct ScopeSize {
  Index streams = 0;  // KV heads of the scope
  Index heads_per_kv = 1;
  Index d = 0;
  Index prompt = 0;
  Index tokens = 0;

  Index heads() const { return streams * heads_per_kv; }  // query heads
};

// Work that decides once for a whole scope, the model or a layer. Its kinds take a ModelContext,
// and say with
//   double bytes(const ScopeSize& size) const;
// the most memory that computing takes besides the current stream.
class ModelWork {
 public:
  template <class Work>
  // NOLINTNEXTLINE(google-explicit-constructor): as SharedWork
  ModelWork(const Work& work)
      : key_(work),
        compute_([work](const ModelContext& context) {
          return std::make_shared<typename Work::Result>(work.compute(context));
        }),
        bytes_([work](const ScopeSize& size) { return work.bytes(size); }) {}

  const WorkKey& key() const { return key_; }
  std::shared_ptr<void> compute(const ModelContext& context) const { return compute_(context); }
  double bytes(const ScopeSize& size) const { return bytes_(size); }

 private:
  WorkKey key_;
  std::function<std::shared_ptr<void>(const ModelContext&)> compute_;
  std::function<double(const ScopeSize&)> bytes_;
};

// Results by the work that gave them.
class SharedResults {
 public:
  // Throws CellError with the reason if the work failed: then its cells fail, no others.
  template <class Work>
  const typename Work::Result& get(const Work& work) const {
    return *static_cast<const typename Work::Result*>(result(WorkKey(work)));
  }
  bool has(const WorkKey& key) const;

  // Computes it unless it is there; throws what the work throws.
  template <class Work, class CellContext>
  void add(const Work& work, const CellContext& context) {
    if (!has(work.key())) put(work.key(), {work.compute(context), ""});
  }
  void put(const WorkKey& key, WorkOutcome outcome);
  // Adds the block to a result that gathers rows; nothing where there is none. Throws what the
  // work throws.
  void add_rows(const SharedWork& piece, const SharedContext& context, const RowBlock& block);
  void fail(const WorkKey& key, std::string reason);

 private:
  const void* result(const WorkKey& key) const;

  std::map<WorkKey, WorkOutcome> outcomes_;
};

}  // namespace kvbench
