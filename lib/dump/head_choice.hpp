// KV heads of a dump, chosen by sequence, layer and index: `kvbench inspect`.
#pragma once

#include <string>
#include <vector>

#include "dump/dump_info.hpp"

namespace kvbench {

// An empty list chooses all.
struct HeadChoice {
  std::vector<std::string> sequences;
  std::vector<int> layers;
  std::vector<int> kv_heads;
};

struct ChosenHead {
  const SequenceInfo* sequence;
  const LayerInfo* layer;
  int kv_head;
};

// Ascending by sequence, layer, head. Throws InputError for names that the dump does not have, all
// at once; where a sequence or layer is wrong, the rest of the choice is looked for in all of them.
std::vector<ChosenHead> choose_heads(const DumpInfo& info, const HeadChoice& choice);

}  // namespace kvbench
