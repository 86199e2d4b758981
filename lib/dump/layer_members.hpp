// What a layer or a sequence of a dump may have beyond q, k, v and their scale: what changes its
// logits, its mask or its values, and what is measured besides its answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "dump/attributes.hpp"
#include "dump/dump.hpp"
#include "dump/hdf5.hpp"

namespace kvbench {

// The attributes causal, chunk and value_in_key; `info` has the sliding window.
void check_mask(ErrorList& errors, Attributes& attributes, const std::string& location,
                LayerInfo& info);

// The datasets sinks, alibi_slopes, wo and residual_norm of a layer of so many query heads, tokens
// and columns of values.
struct MemberSizes {
  Index query_heads;
  Index tokens;
  Index dv;
};
void check_members(ErrorList& errors, hid_t layer, const std::string& location,
                   const MemberSizes& sizes, LayerInfo& info);

// An error for each member of the layer that files of this version cannot have.
void require_version(ErrorList& errors, hid_t layer, const std::string& location, int version);

// The dataset `evidence` of a sequence, if it has one.
std::optional<Evidence> check_evidence(ErrorList& errors, hid_t sequence,
                                       const std::string& location, Index tokens);

// Of a layer that passed the check. Throws InputError, "PLACE/residual_norm: ..", for NaN, infinity
// and numbers below 0.
std::vector<double> read_residual_norms(hid_t layer, const std::string& place);

}  // namespace kvbench
