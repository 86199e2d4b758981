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

template <class P>
struct TypedAlgorithm : AlgorithmFunctions<P> {
  std::string id;
  std::vector<std::string> aliases;
  std::string title;   // one line
  std::string source;  // paper, equation or section
  ParameterTable<P> parameters;
  std::vector<ExactlyOneOf> exactly_one_of;
  std::vector<DerivedKey> derived;
  ModelLimits limits;
  bool answers_prompt_rows = false;

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
    d.limits = limits;
    d.answers_prompt_rows = answers_prompt_rows;
    const auto table = std::make_shared<const ParameterTable<P>>(parameters);
    kvbench::bind(table, this->randomised, d.randomised);
    kvbench::bind(table, this->needs, d.needs);
    kvbench::bind(table, this->validate, d.validate);
    kvbench::bind(table, this->skip_reason, d.skip_reason);
    kvbench::bind(table, this->misfit, d.misfit);
    kvbench::bind(table, this->shared_work, d.shared_work);
    kvbench::bind(table, this->replay_scope, d.replay_scope);
    kvbench::bind(table, this->model_work, d.model_work);
    kvbench::bind(table, this->create, d.create);
    kvbench::bind(table, this->most_kept, d.most_kept);
    kvbench::bind(table, this->not_rows, d.not_rows);
    kvbench::bind(table, this->only_appends, d.only_appends);
    kvbench::bind(table, this->not_stored, d.not_stored);
    kvbench::bind(table, this->makes_values, d.makes_values);
    kvbench::bind(table, this->never_evicts, d.never_evicts);
    return d;
  }
};

}  // namespace kvbench
