// An algorithm as its file writes it: functions of its own parameter struct P, and the table that
// fills P. What the rest of the program sees is an AlgorithmDescription.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/parameter_table.hpp"

namespace kvbench {

struct NoParameters {};

template <class P>
struct TypedAlgorithm : AlgorithmFunctions<P> {
  std::string id;
  std::vector<std::string> aliases;
  std::string title;   // one line
  std::string source;  // paper, equation or section
  ParameterTable<P> parameters;
  std::vector<ExactlyOneOf> exactly_one_of;
  std::vector<DerivedKey> derived;

  // NOLINTNEXTLINE(google-explicit-constructor): what describe_<id>() returns
  operator AlgorithmDescription() const {
    AlgorithmDescription d;
    d.id = id;
    d.aliases = aliases;
    d.title = title;
    d.source = source;
    d.parameters = parameters.rows();
    for (Parameter& parameter : d.parameters) {
      parameter.takes_memory = parameter.takes_memory && this->most_kept;
    }
    d.exactly_one_of = exactly_one_of;
    d.derived = derived;
    const auto table = std::make_shared<const ParameterTable<P>>(parameters);
    bind(table, this->randomised, d.randomised);
    bind(table, this->needs, d.needs);
    bind(table, this->validate, d.validate);
    bind(table, this->skip_reason, d.skip_reason);
    bind(table, this->misfit, d.misfit);
    bind(table, this->shared_work, d.shared_work);
    bind(table, this->replay_scope, d.replay_scope);
    bind(table, this->model_work, d.model_work);
    bind(table, this->create, d.create);
    bind(table, this->most_kept, d.most_kept);
    bind(table, this->not_rows, d.not_rows);
    bind(table, this->never_evicts, d.never_evicts);
    return d;
  }

 private:
  // `out` reads its Params with the table and asks `typed`; empty stays empty.
  template <class R, class... Rest>
  static void bind(const std::shared_ptr<const ParameterTable<P>>& table,
                   const std::function<R(const P&, Rest...)>& typed,
                   std::function<R(const Params&, Rest...)>& out) {
    if (!typed) return;
    out = [table, typed](const Params& params, Rest... rest) -> R {
      return typed(table->read(params), rest...);
    };
  }
};

}  // namespace kvbench
