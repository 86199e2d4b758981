#include "dump/head_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "system/error.hpp"

namespace kvbench {
namespace {

template <class T>
bool selected(const std::vector<T>& wanted, const T& value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

// Whether the wanted are all known; the others are one error.
template <class T>
bool all_known(const std::vector<T>& wanted, const std::set<T>& known, const std::string& path,
               const char* option, const char* what, const char* holders, ErrorList& errors) {
  std::vector<T> unknown;
  std::ranges::copy_if(wanted, std::back_inserter(unknown),
                       [&](const T& each) { return !known.contains(each); });
  if (unknown.empty()) return true;
  errors.add(fmt::format("{}: {} {}: no such {}; {} {}", path, option, fmt::join(unknown, ", "),
                         what, holders, fmt::join(known, ", ")));
  return false;
}

}  // namespace

std::vector<ChosenHead> choose_heads(const DumpInfo& info, const HeadChoice& choice) {
  std::set<std::string> sequences;
  for (const SequenceInfo& sequence : info.sequences) sequences.insert(sequence.name);
  ErrorList errors;
  const bool any_sequence = !all_known(choice.sequences, sequences, info.path, "--sequences",
                                       "sequence", "the dump has", errors);

  std::vector<std::pair<const SequenceInfo*, const LayerInfo*>> layers;
  std::set<int> indices;
  for (const SequenceInfo& sequence : info.sequences) {
    if (!any_sequence && !selected(choice.sequences, sequence.name)) continue;
    for (const LayerInfo& layer : sequence.layers) {
      layers.emplace_back(&sequence, &layer);
      indices.insert(layer.index);
    }
  }
  const bool any_layer =
      !all_known(choice.layers, indices, info.path, "--layers", "layer", "the dump has", errors);

  std::vector<ChosenHead> heads;
  std::set<int> kv_heads;
  for (const auto& [sequence, layer] : layers) {
    if (!any_layer && !selected(choice.layers, layer->index)) continue;
    for (int head = 0; head < static_cast<int>(layer->kv_heads); ++head) {
      kv_heads.insert(head);
      if (selected(choice.kv_heads, head)) heads.push_back({sequence, layer, head});
    }
  }
  all_known(choice.kv_heads, kv_heads, info.path, "--kv-heads", "KV head", "these layers have",
            errors);
  errors.throw_if_any();
  return heads;
}

}  // namespace kvbench
