// Two methods one after the other: what one keeps at the end of the prompt, and every token after
// it, is the whole cache of another, which chooses by the query what of it a row reads ("then" of a
// sweep). RocketKV (2502.14051) is such a pair: snapkv, then hsa.
//
// The reading method sees a stream of the kept tokens alone, in their order: numbers of tokens,
// pages and fractions of the prompt are of these. Keys stay as they are, turned to the positions
// that their tokens had. Memory is that of the kept tokens and of what the reading method stores to
// find rows among them; traffic is what it reads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "algorithms/algorithm.hpp"
#include "core/pair_names.hpp"

namespace kvbench {

// Why no other method can read what this one keeps with these parameters, as "X ..; remedy"; none:
// one can. It needs tokens with their own keys and values, of weight 1, of which none go later.
std::optional<std::string> cannot_be_first(const AlgorithmDescription& algorithm,
                                           const Params& params);

// The pair as one method: id "first+reader", parameters of the reading one with kThen before their
// names. `reader` has `reads`.
std::shared_ptr<const AlgorithmDescription> composition(const AlgorithmDescription& first,
                                                        const AlgorithmDescription& reader);

// The reading method's parameters, with their names in a pair.
AlgorithmDescription named_in_pair(AlgorithmDescription reader);

// The parameters of both methods of a composition.
std::pair<Params, Params> parts_of(const Params& params);

}  // namespace kvbench
