// Members that a layer of a dump may have beyond q, k, v and their scale, and that change its
// logits, its mask or its values, or say how its keys were made.
#pragma once

#include <string>

#include "dump/dump_info.hpp"
#include "hdf5/attributes.hpp"
#include "hdf5/hdf5.hpp"
#include "system/error.hpp"

namespace kvbench {

// The attributes causal, chunk and value_in_key; `info` has the sliding window.
void check_mask(ErrorList& errors, Attributes& attributes, const std::string& location,
                LayerInfo& info);

// The datasets sinks and alibi_slopes.
void check_members(ErrorList& errors, hid_t layer, const std::string& location, Index query_heads,
                   LayerInfo& info);

// The dataset key_bias [kv_heads, d].
void check_key_bias(ErrorList& errors, hid_t layer, const std::string& location, Index kv_heads,
                    Index d, LayerInfo& info);

// An error for each member of the layer that files of this version cannot have.
void require_version(ErrorList& errors, hid_t layer, const std::string& location, int version);

}  // namespace kvbench
