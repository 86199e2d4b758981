#include "support/scripted.hpp"

#include <initializer_list>
#include <utility>

namespace kvbench::test {
namespace {

class Scripted : public Algorithm {
 public:
  Scripted(const CellContext& context, std::function<void(Index, Sketch&)> script, CallLog* log)
      : prompt_(context.prompt), script_(std::move(script)), log_(log) {}

  void extend(Index first, Index last) override {
    note("extend", {first, last});
    if (first >= prompt_) {
      for (Index row = first; row < last; ++row) script_(row, sketch_);
    }
  }
  void finish_prompt() override {
    if (log_ != nullptr) log_->push_back("finish_prompt");
    script_(prompt_ - 1, sketch_);
  }
  void prepare(const RowLogits& row) override { note("prepare", {row.row}); }
  void answered(const RowLogits& row) override { note("answered", {row.row}); }

 private:
  void note(const char* what, std::initializer_list<Index> numbers) {
    if (log_ == nullptr) return;
    std::string line = what;
    for (const Index number : numbers) {
      line += ' ';
      line += std::to_string(number);
    }
    log_->push_back(line);
  }

  Index prompt_;
  std::function<void(Index, Sketch&)> script_;
  CallLog* log_;
};

}  // namespace

AlgorithmDescription scripted(std::function<void(Index row, Sketch& sketch)> script,
                              bool row_logits, CallLog* log) {
  AlgorithmDescription description;
  description.id = "scripted";
  description.needs = [row_logits](const Params&) { return Needs{.row_logits = row_logits}; };
  description.create = [script = std::move(script), log](const Params&,
                                                         const CellContext& context) {
    return std::make_unique<Scripted>(context, script, log);
  };
  return description;
}

}  // namespace kvbench::test
