#include "sweep/group_selection.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <utility>

#include "json/document.hpp"
#include "sweep/prompt_length.hpp"
#include "sweep/scored_rows.hpp"

namespace kvbench {
namespace {

template <class T>
std::string listed(const std::set<T>& existing) {
  constexpr std::size_t kMaxTexts = 50;
  std::vector<std::string> texts;
  for (const T& element : existing) {
    if (texts.size() == kMaxTexts) break;
    texts.push_back(fmt::format("{}", element));
  }
  if (existing.size() > kMaxTexts) texts.push_back(fmt::format("... ({} in all)", existing.size()));
  return fmt::format("{}", fmt::join(texts, ", "));
}

class GroupSelector {
 public:
  GroupSelector(const SweepConfig& config, const std::vector<PlannedDump>& dumps, ErrorList& errors)
      : config_(config), dumps_(dumps), errors_(errors) {}

  std::vector<WorkGroup> select() {
    refuse_equal_dumps();
    refuse_unknown(config_.select, "/select");
    for (const auto& [pointer, where] : config_.wheres) refuse_unknown(where, pointer);
    refuse_unknown_in_storages();
    if (config_.streams_known) select_groups();
    return std::move(groups_);
  }

 private:
  void refuse_equal_dumps() {
    std::map<std::string, std::string> seen;  // fingerprint -> path
    for (const PlannedDump& dump : dumps_) {
      const auto [first, fresh] = seen.emplace(dump.fingerprint, dump.path);
      if (fresh) continue;
      errors_.add("/dumps", fmt::format("{} and {} have the same content; list one of them",
                                        first->second, dump.path));
    }
  }

  template <class T>
  void refuse_missing(const std::optional<std::vector<T>>& wanted, const std::set<T>& existing,
                      const char* what, const std::string& pointer) {
    if (!wanted) return;
    for (std::size_t i = 0; i < wanted->size(); ++i) {
      if (errors_.is_full() || existing.count((*wanted)[i]) != 0) continue;
      errors_.add(child(pointer, i), fmt::format("no dump has {0} {1}; expected one of {2}", what,
                                                 (*wanted)[i], listed(existing)));
    }
  }

  // Each name must exist in at least one dump.
  void refuse_unknown(const Selection& selection, const std::string& pointer) {
    if (selection == Selection{}) return;
    if (sequences_.empty()) list_names();
    refuse_missing(selection.sequences, sequences_, "sequence", child(pointer, "sequences"));
    refuse_missing(selection.layers, layers_, "layer", child(pointer, "layers"));
    refuse_missing(selection.kv_heads, heads_, "KV head", child(pointer, "kv_heads"));
  }

  // Each layer that a storage names must be one of a dump's model, which may be larger than the
  // dump.
  void refuse_unknown_in_storages() {
    int layers = 0;
    for (const PlannedDump& dump : dumps_) layers = std::max(layers, dump.n_layers);
    std::set<const LayerStorages*> seen;
    for (const SweepEntry& entry : config_.entries) {
      for (const auto& storage : entry.storages) {
        if (!storage || !storage->by_layer || !seen.insert(storage->by_layer.get()).second) {
          continue;
        }
        for (const LayerStorages::Some& some : storage->by_layer->some) {
          const int last = some.layers.back();
          if (last < layers) continue;
          errors_.add("/storage",
                      fmt::format("by_layer: no model of the dumps has layer {}; expected "
                                  "one of 0 to {}",
                                  last, layers - 1));
        }
      }
    }
  }

  void list_names() {
    for (const PlannedDump& dump : dumps_) {
      for (const PlannedSequence& sequence : dump.sequences) {
        sequences_.insert(sequence.name);
        for (const PlannedLayer& layer : sequence.layers) {
          layers_.insert(layer.index);
          for (int head = 0; head < layer.kv_heads; ++head) heads_.insert(head);
        }
      }
    }
  }

  void select_groups() {
    for (std::size_t d = 0; d < dumps_.size(); ++d) {
      const std::size_t before = groups_.size();
      for (const PlannedSequence& sequence : dumps_[d].sequences) {
        if (!is_utf8(sequence.name)) {
          errors_.add("/dumps", fmt::format("a sequence of {} has a name that is not UTF-8; rename "
                                            "it in the dump",
                                            dumps_[d].path));
          continue;
        }
        for (const PlannedLayer& layer : sequence.layers) {
          if (!selects(config_.select, sequence.name, layer.index) ||
              selected_heads(config_.select, {}, layer.kv_heads) == 0) {
            continue;
          }
          if (config_.tokens.empty()) add_group(d, sequence, layer, 0, "/select/tokens");
          for (std::size_t i = 0; i < config_.tokens.size() && !errors_.is_full(); ++i) {
            const bool listed = config_.resolved["select"]["tokens"].is_array();
            add_group(d, sequence, layer, config_.tokens[i],
                      listed ? child("/select/tokens", i) : "/select/tokens");
          }
        }
      }
      if (groups_.size() == before && errors_.none()) {
        errors_.add("/select",
                    fmt::format("selects nothing of {}; select some of it, or remove it from "
                                "the list of dumps",
                                dumps_[d].path));
      }
    }
  }

  // Adds the group of the first `tokens` tokens, 0: all; `pointer`: where that number is given.
  void add_group(std::size_t d, const PlannedSequence& sequence, const PlannedLayer& layer,
                 Index tokens, const std::string& pointer) {
    const std::string place = fmt::format("sequence {} of {}", sequence.name, dumps_[d].path);
    WorkGroup group;
    group.dump = d;
    group.sequence = sequence.name;
    group.layer = layer.index;
    group.first_tokens = tokens;
    group.kv_heads = layer.kv_heads;
    group.shape = layer.shape;
    group.chunk_bytes = layer.chunk_bytes;
    group.hidden = layer.hidden;
    group.wo_chunk_bytes = layer.wo_chunk_bytes;
    group.first_residual = layer.shape.tokens - layer.residual_rows;
    group.evidence = sequence.evidence;
    if (tokens > layer.shape.tokens) {
      errors_.add(pointer, fmt::format("must be at most {}, the tokens of {}, got {}",
                                       layer.shape.tokens, place, tokens));
      return;
    }
    if (tokens > 0) group.shape.tokens = tokens;
    const Index n = group.shape.tokens;
    group.shape.first_query = std::min(group.shape.first_query, n);
    const std::optional<Index> prompt =
        group.shape.causal ? prompt_length(config_.prompt_tokens, sequence.prompt_tokens, n,
                                           n - group.shape.first_query, place, errors_)
                           : n;
    if (!prompt) return;
    group.prompt = *prompt;
    if (!group.shape.causal && config_.keep_caches) {
      errors_.add("/output/caches",
                  fmt::format("cannot be true: every row of layer {} of {} sees every token, and a "
                              "cache file has rows by decode row; set it to false",
                              layer.index, place));
    }
    group.rows = scored_rows(config_.rows, group.shape, group.prompt, place, errors_);
    groups_.push_back(std::move(group));
  }

  const SweepConfig& config_;
  const std::vector<PlannedDump>& dumps_;
  ErrorList& errors_;
  std::vector<WorkGroup> groups_;
  std::set<std::string> sequences_;  // names in all dumps, once asked for
  std::set<int> layers_, heads_;
};

}  // namespace

bool selects(const Selection& selection, const std::string& sequence, int layer) {
  return selects(selection.sequences, sequence) && selects(selection.layers, layer);
}

Index selected_heads(const Selection& select, const Selection& where, int kv_heads) {
  Index heads = 0;
  for (int head = 0; head < kv_heads; ++head) {
    heads += selects(select.kv_heads, head) && selects(where.kv_heads, head) ? 1 : 0;
  }
  return heads;
}

std::vector<WorkGroup> select_groups(const SweepConfig& config,
                                     const std::vector<PlannedDump>& dumps, ErrorList& errors) {
  return GroupSelector(config, dumps, errors).select();
}

}  // namespace kvbench
