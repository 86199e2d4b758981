// The algorithms with a wrong weight or a bug in one of them, linked into a program that is
// otherwise kvbench: what a regression looks like from outside.
//
// KVBENCH_PLANTED=ID plants it: every row of ID whose numerator weight is not 1 has the factor
// KVBENCH_PLANTED_FACTOR on it (0.5: the lost factor 2); where an algorithm has no weights, every
// seventh token counts that much. KVBENCH_PLANTED_BUG=PLACE instead throws an exception that no
// cell may throw: std::logic_error where ID begins or first decodes a row (create, decode),
// std::bad_any_cast in work that its cells share (shared), std::out_of_range where it decides for
// the whole model (model), std::bad_alloc when it decodes (memory), which is a cell's own. Without
// it the program is kvbench.
#include <any>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

// The true list under another name: this file takes the place of registry.cpp.
#define all_algorithms true_algorithms
#include "algorithms/registry.cpp"  // NOLINT(bugprone-suspicious-include)
#undef all_algorithms

namespace kvbench {

const std::vector<AlgorithmDescription>& all_algorithms();

namespace {

class WrongWeight final : public Algorithm {
 public:
  WrongWeight(std::unique_ptr<Algorithm> inner, double factor)
      : inner_(std::move(inner)), factor_(factor) {}

  void extend(Index first, Index last) override {
    inner_->extend(first, last);
    copy();
  }
  void finish_prompt() override {
    inner_->finish_prompt();
    copy();
  }
  void prepare(const RowLogits& row) override {
    inner_->prepare(row);
    copy();
  }
  void answered(const RowLogits& row) override {
    inner_->answered(row);
    copy();
  }
  Derived derived() const override { return inner_->derived(); }
  std::optional<Clusters> clusters() const override { return inner_->clusters(); }
  Counters counters() const override { return inner_->counters(); }

 private:
  // Computed weights (SubGen's slots) are weights too, though no number is stored for them.
  static bool has_weight(const SketchRow& row) {
    return row.scaled || row.weight_numbers > 0 || row.w_num != row.w_den;
  }
  void copy() {
    sketch_ = inner_->sketch();
    bool weighted = false;
    for (const SketchRow& row : sketch_.rows()) weighted = weighted || has_weight(row);
    for (Index i = 0; i < sketch_.size(); ++i) {
      const SketchRow row = sketch_[i];
      const bool planted = weighted ? has_weight(row) : row.token % 7 == 0;
      if (planted) sketch_.set_weights(i, factor_ * row.w_num, row.w_den);
    }
  }

  std::unique_ptr<Algorithm> inner_;
  double factor_;
};

// Throws at the first token behind the prompt.
class Buggy final : public Algorithm {
 public:
  Buggy(std::unique_ptr<Algorithm> inner, Index prompt, bool memory)
      : inner_(std::move(inner)), prompt_(prompt), memory_(memory) {}

  void extend(Index first, Index last) override {
    inner_->extend(first, last);
    sketch_ = inner_->sketch();
    if (last <= prompt_) return;
    if (memory_) throw std::bad_alloc();
    throw std::logic_error("planted bug");
  }
  void finish_prompt() override { inner_->finish_prompt(); }

 private:
  std::unique_ptr<Algorithm> inner_;
  Index prompt_;
  bool memory_;
};

struct PlantedWork {
  using Result = int;
  Result compute(const SharedContext&) const { throw std::bad_any_cast(); }
  auto operator<=>(const PlantedWork&) const = default;
};

struct PlantedModelWork {
  using Result = int;
  Result compute(const ModelContext&) const { throw std::out_of_range("planted bug"); }
  double bytes(const ScopeSize&) const { return 0.0; }
  auto operator<=>(const PlantedModelWork&) const = default;
};

void plant_bug(AlgorithmDescription& algorithm, const std::string& place) {
  if (place == "create") {
    algorithm.create = [](const Params&, const CellContext&) -> std::unique_ptr<Algorithm> {
      throw std::logic_error("planted bug");
    };
  } else if (place == "decode" || place == "memory") {
    algorithm.create = [create = algorithm.create, memory = place == "memory"](
                           const Params& params,
                           const CellContext& context) -> std::unique_ptr<Algorithm> {
      return std::make_unique<Buggy>(create(params, context), context.prompt, memory);
    };
  } else if (place == "shared") {
    algorithm.shared_work = [](const Params&, const StreamShape&, Index, std::uint32_t) {
      return std::vector<SharedWork>{PlantedWork()};
    };
  } else if (place == "model") {
    algorithm.model_work = [](const Params&, std::uint32_t) {
      return ModelWork(PlantedModelWork());
    };
  } else {
    std::abort();  // no such place: the test that names it is wrong
  }
}

}  // namespace

const std::vector<AlgorithmDescription>& all_algorithms() {
  static const std::vector<AlgorithmDescription> algorithms = [] {
    std::vector<AlgorithmDescription> all = true_algorithms();
    const char* planted = std::getenv("KVBENCH_PLANTED");
    const char* factor = std::getenv("KVBENCH_PLANTED_FACTOR");
    const char* bug = std::getenv("KVBENCH_PLANTED_BUG");
    if (planted == nullptr || (factor == nullptr && bug == nullptr)) return all;
    for (AlgorithmDescription& algorithm : all) {
      if (algorithm.id != planted) continue;
      if (bug != nullptr) {
        plant_bug(algorithm, bug);
        continue;
      }
      algorithm.create = [create = algorithm.create, by = std::strtod(factor, nullptr)](
                             const Params& params,
                             const CellContext& context) -> std::unique_ptr<Algorithm> {
        return std::make_unique<WrongWeight>(create(params, context), by);
      };
    }
    return all;
  }();
  return algorithms;
}

}  // namespace kvbench
