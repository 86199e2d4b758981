// Layers that read the keys and values of another layer (Gemma 3n's last ones, cross-layer
// attention): one cache, which is compressed and counted once.
#pragma once

#include <string>

#include "dump/dump_info.hpp"
#include "system/error.hpp"

namespace kvbench {

// Gives each layer with `kv_layer` what it has of the layer that it names, and that layer its
// readers; an error where the two disagree in what one cache cannot hold. `location`: the
// sequence's.
void join_kv_layers(ErrorList& errors, const std::string& location, SequenceInfo& sequence);

}  // namespace kvbench
