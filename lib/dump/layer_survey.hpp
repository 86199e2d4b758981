// Survey of the keys and values of a dump's layers: more heads than tokens, equal heads, tokens of
// zeros, layers that have another one's. Each is a mistake of the capture more often than a
// model's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dump/dump_info.hpp"

namespace kvbench {

struct LayerSurvey {
  std::string sequence;
  int layer = 0;
  Index tokens = 0;
  std::vector<std::string> heads;  // by KV head: hash of its keys and values
  Index last_key = -1;             // the last token with a key that is not zero in every KV head
  std::vector<Index> first_keys;   // by KV head: the first token with a key that is not zero

  Index zero_tail() const { return tokens - 1 - last_key; }
  bool all_zero() const { return last_key < 0; }
  // The KV head whose keys begin last, if there is one with zeros before them; else none.
  std::optional<std::size_t> late_head() const;
  std::size_t different_heads() const;
  bool is_suspicious() const;
};

// One line for each kind of finding, with the first layer that has it and the number of others.
std::vector<std::string> survey_notes(const std::string& path,
                                      const std::vector<LayerSurvey>& layers);

}  // namespace kvbench
