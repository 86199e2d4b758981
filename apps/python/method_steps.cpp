#include "python/method_steps.hpp"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/arrays.hpp"
#include "python/interruptible.hpp"
#include "python/method_calls.hpp"
#include "sweep/cell_identity.hpp"
#include "system/error.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

struct Weights {
  double w_num = 1.0;
  double w_den = 1.0;
};

using Stays = std::unordered_map<std::int32_t, Weights>;  // by token

// The prompt's tokens that `compress` kept, then every decoded one; after each row those go that
// `step` does not keep.
class Stepped final : public Algorithm {
 public:
  Stepped(const PythonMethod& method, const Params& params, const CellContext& context)
      : method_(method), shape_(context.stream.shape), prompt_(context.prompt) {
    std::vector<PromptCopy> prompts;
    prompts.emplace_back(context.stream, context.prompt);
    const std::string text = exact_line(params_json(params));
    on_calling_thread([&] { begin(answer_of(method_, text, context.seed, prompts)); });
  }

  ~Stepped() override {
    const nb::gil_scoped_acquire locked;
    step_.reset();
  }

  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;

  void extend(Index first, Index last) override {
    for (Index i = std::max(first, prompt_); i < last; ++i) {
      if (shape_.slides()) drop_before(shape_.first_visible(i));
      sketch_.add(SketchRow::exact(i));
    }
  }

  void answered(const RowLogits& row) override {
    const auto held = static_cast<std::size_t>(sketch_.size());
    std::vector<std::int64_t> tokens(held);
    std::vector<double> logits(held * static_cast<std::size_t>(row.heads_per_kv));
    for (std::size_t j = 0; j < held; ++j) {
      tokens[j] = sketch_[static_cast<Index>(j)].token;
      for (int g = 0; g < row.heads_per_kv; ++g) {
        logits[static_cast<std::size_t>(g) * held + j] = row.logit(g, tokens[j]);
      }
    }
    on_calling_thread([&] {
      const nb::object answer = step_(row.row, numpy_array(std::move(tokens), held),
                                      numpy_array(std::move(logits), row.heads_per_kv, held));
      if (nb::isinstance<nb::str>(answer)) throw CellError(nb::cast<std::string>(answer));
      if (!answer.is_none()) keep(stays_of(answer), row.row);
    });
  }

 private:
  template <class T>
  using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

  void begin(const nb::object& answer) {
    const nb::handle first = answer[0];
    if (first[0].is_none()) {
      sketch_.add_exact(0, prompt_);
    } else {
      const KeptRows kept = rows_of(method_, first[0], prompt_);
      for (const KeptRow& each : kept.rows) {
        SketchRow row = SketchRow::exact(each.token);
        row.w_num = each.w_num;
        row.w_den = each.w_den;
        row.weight_numbers = each.weight_numbers;
        sketch_.add(row);
      }
    }
    step_ = nb::borrow(first[1]);  // last: what throws in a constructor ends without the lock
  }

  static Stays stays_of(const nb::object& answer) {
    const auto tokens = nb::cast<Column<std::int64_t>>(answer[0]);
    const auto numerators = nb::cast<Column<double>>(answer[1]);
    const auto denominators = nb::cast<Column<double>>(answer[2]);
    Stays stays;
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      stays[static_cast<std::int32_t>(tokens.data()[r])] = {numerators.data()[r],
                                                            denominators.data()[r]};
    }
    return stays;
  }

  void keep(const Stays& stays, Index at) {
    std::size_t found = 0;
    std::uint8_t numbers = 0;
    for (const auto& [token, weights] : stays) {
      const int needed = weights.w_num != weights.w_den ? 2 : weights.w_num != 1.0 ? 1 : 0;
      numbers = std::max(numbers, static_cast<std::uint8_t>(needed));
    }
    for (Index position = sketch_.size() - 1; position >= 0; --position) {
      const auto stay = stays.find(sketch_[position].token);
      if (stay == stays.end()) {
        sketch_.erase(position);
        continue;
      }
      ++found;
      SketchRow row = SketchRow::exact(sketch_[position].token);
      row.w_num = stay->second.w_num;
      row.w_den = stay->second.w_den;
      row.weight_numbers = numbers;
      const SketchRow& now = sketch_[position];
      if (now.w_num != row.w_num || now.w_den != row.w_den || now.weight_numbers != numbers) {
        sketch_.replace(position, row);
      }
    }
    if (found != stays.size()) {
      throw CellError(
          fmt::format("{}: step kept a token after row {} that was not held then", method_.id, at));
    }
  }

  void drop_before(Index first) {
    for (Index position = sketch_.size() - 1; position >= 0; --position) {
      if (sketch_[position].token < first) sketch_.erase(position);
    }
  }

  const PythonMethod& method_;
  const StreamShape shape_;
  const Index prompt_;
  nb::object step_;
};

}  // namespace

void describe_steps(const PythonMethod& method, AlgorithmDescription& description) {
  const PythonMethod* const self = &method;
  description.needs = [](const Params&) {
    return Needs{.row_logits = true, .kept_tokens_only = true};
  };
  description.skip_reason = [self](const Params&, const StreamShape& shape,
                                   Index prompt) -> std::optional<std::string> {
    if (shape.first_query <= prompt) return std::nullopt;
    return fmt::format("{} decides after every decode row, and the dump has queries from row {} on",
                       self->id, shape.first_query);
  };
  description.create = [self](const Params& params, const CellContext& context) {
    return std::make_unique<Stepped>(*self, params, context);
  };
}

}  // namespace kvbench::python
