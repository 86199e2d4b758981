// An algorithm as its file writes it: functions of its own parameter struct P, and the table that
// fills P. The rest of the program sees an AlgorithmDescription.
#pragma once

#include <memory>
#include <utility>

#include "algorithms/algorithm.hpp"
#include "parameters/parameter_table.hpp"

namespace kvbench {

// A description with these facts and the table's rows. `takes_memory`: whether budgets may be given
// as memory.
AlgorithmDescription described(const AlgorithmFacts& facts, const UntypedTable& table,
                               bool takes_memory);

// The description of a method with `ranks`, with the parameters of mechanisms/paging.hpp besides.
AlgorithmDescription with_paging(AlgorithmDescription plain);

template <class P>
struct TypedAlgorithm : AlgorithmFacts, AlgorithmFunctions<P> {
  ParameterTable<P> parameters;

  // NOLINTNEXTLINE(google-explicit-constructor): what describe() returns
  operator AlgorithmDescription() const {
    AlgorithmDescription d = described(*this, parameters, static_cast<bool>(this->most_kept));
    const std::shared_ptr<const UntypedTable> table = shared_table(parameters);
    kvbench::bind(table, this->randomised, d.randomised);
    kvbench::bind(table, this->needs, d.needs);
    kvbench::bind(table, this->validate, d.validate);
    kvbench::bind(table, this->skip_reason, d.skip_reason);
    kvbench::bind(table, this->misfit, d.misfit);
    kvbench::bind(table, this->shared_work, d.shared_work);
    kvbench::bind(table, this->replay_scope, d.replay_scope);
    kvbench::bind(table, this->model_work, d.model_work);
    kvbench::bind(table, this->calibrate, d.calibrate);
    kvbench::bind(table, this->create, d.create);
    kvbench::bind(table, this->most_kept, d.most_kept);
    kvbench::bind(table, this->not_rows, d.not_rows);
    kvbench::bind(table, this->only_appends, d.only_appends);
    kvbench::bind(table, this->not_stored, d.not_stored);
    kvbench::bind(table, this->makes_values, d.makes_values);
    kvbench::bind(table, this->weighs, d.weighs);
    kvbench::bind(table, this->never_evicts, d.never_evicts);
    kvbench::bind(table, this->memory, d.memory);
    kvbench::bind(table, this->not_ranked, d.not_ranked);
    if (!this->ranks) return d;
    kvbench::bind(table, this->ranks, d.ranks);
    return with_paging(std::move(d));
  }
};

}  // namespace kvbench
