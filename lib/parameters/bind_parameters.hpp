// Definition of bind() of parameter_table.hpp, for the files that instantiate it.
#pragma once

#include <memory>

#include "parameters/parameter_table.hpp"

namespace kvbench {

template <class R, class... Rest>
void bind(const std::shared_ptr<const UntypedTable>& table,
          const UntypedFunction<R(Rest...)>& typed, std::function<R(const Params&, Rest...)>& out) {
  if (!typed) return;
  out = [table, typed](const Params& params, Rest... rest) -> R {
    return typed(table->read(params).get(), rest...);
  };
}

}  // namespace kvbench
