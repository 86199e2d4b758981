#include "sweep/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <variant>

#include "algorithms/memory_budget.hpp"
#include "core/hash.hpp"
#include "json/document.hpp"
#include "json/pointer.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/head_misfits.hpp"
#include "sweep/layer_records.hpp"
#include "sweep/only_filter.hpp"
#include "sweep/prompt_length.hpp"
#include "sweep/scored_rows.hpp"
#include "sweep/storage_axis.hpp"
#include "sweep/stored_budget.hpp"

namespace kvbench {
namespace {

template <class T>
bool selects(const std::optional<std::vector<T>>& list, const T& element) {
  return !list || std::find(list->begin(), list->end(), element) != list->end();
}

bool selects(const Selection& selection, const std::string& sequence, int layer) {
  return selects(selection.sequences, sequence) && selects(selection.layers, layer);
}

template <class T>
std::string listed(const std::set<T>& existing) {
  constexpr std::size_t kMost = 50;
  std::vector<std::string> texts;
  for (const T& element : existing) {
    if (texts.size() == kMost) break;
    texts.push_back(fmt::format("{}", element));
  }
  if (existing.size() > kMost) texts.push_back(fmt::format("... ({} in all)", existing.size()));
  return fmt::format("{}", fmt::join(texts, ", "));
}

class Planner {
 public:
  Planner(const SweepConfig& config, Plan& plan)
      : config_(config), plan_(plan), errors_(config.path) {}

  void build(const std::vector<std::string>& only, double memory_limit) {
    errors_.add_all(config_.errors);
    refuse_equal_dumps();
    refuse_unknown(config_.select, "/select");
    for (const auto& [pointer, where] : config_.wheres) refuse_unknown(where, pointer);
    if (config_.streams_known) select_groups();
    if (config_.errors.empty()) refuse_too_many(only.empty(), memory_limit);
    errors_.throw_if_any();
    take_caches();
    expand_points();
    if (only.empty()) plan_.cells.reserve(static_cast<std::size_t>(cells_));
    Only filter(only);
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) add_cells(g, filter);
    misfits_.report(errors_);
    filter.report_unused(errors_);
    errors_.throw_if_any();
    drop_empty_groups();
    add_layer_records(plan_);
    Hash128 hash;
    std::unordered_set<const Params*> points;
    for (const PlannedCell& cell : plan_.cells) {
      points.insert(cell.params.get());
      hash.add(cell.id.text() + "\n");
    }
    plan_.hash = hash.hex();
    plan_.points = points.size();
  }

 private:
  void refuse_equal_dumps() {
    std::map<std::string, std::string> seen;  // fingerprint -> path
    for (const PlannedDump& dump : plan_.dumps) {
      const auto [first, fresh] = seen.emplace(dump.fingerprint, dump.path);
      if (fresh) continue;
      errors_.add("/dumps", fmt::format("{} and {} have the same content; list one of them",
                                        first->second, dump.path));
    }
  }

  // The cache files of the parameters, each once.
  void take_caches() {
    std::map<std::string, std::string> seen;  // fingerprint -> path
    for (const SweepEntry& entry : config_.entries) {
      for (const auto& [name, values] : entry.axes) {
        for (const Value& value : values) {
          const auto* file = std::get_if<CacheParameter>(&value);
          if (file == nullptr) continue;
          const std::string place = child(child(entry.pointer, "params"), name);
          if (!file->cache) {
            errors_.add(place, file->path + " was not opened");
            continue;
          }
          const auto [first, fresh] = seen.emplace(file->cache->fingerprint, file->path);
          if (fresh) plan_.caches.push_back(file->cache);
          if (first->second == file->path) continue;
          errors_.add(place, fmt::format("{} and {} have the same content; list one of them",
                                         first->second, file->path));
        }
      }
    }
    errors_.throw_if_any();
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

  // What is named must exist in at least one dump.
  void refuse_unknown(const Selection& selection, const std::string& pointer) {
    if (selection == Selection{}) return;
    if (sequences_.empty()) list_names();
    refuse_missing(selection.sequences, sequences_, "sequence", child(pointer, "sequences"));
    refuse_missing(selection.layers, layers_, "layer", child(pointer, "layers"));
    refuse_missing(selection.kv_heads, heads_, "KV head", child(pointer, "kv_heads"));
  }

  void list_names() {
    for (const PlannedDump& dump : plan_.dumps) {
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
    for (std::size_t d = 0; d < plan_.dumps.size(); ++d) {
      const std::size_t before = plan_.groups.size();
      for (const PlannedSequence& sequence : plan_.dumps[d].sequences) {
        if (!is_utf8(sequence.name)) {
          errors_.add("/dumps", fmt::format("a sequence of {} has a name that is not UTF-8; rename "
                                            "it in the dump",
                                            plan_.dumps[d].path));
          continue;
        }
        for (const PlannedLayer& layer : sequence.layers) {
          if (!selects(config_.select, sequence.name, layer.index) ||
              selected_heads(layer.kv_heads, {}) == 0) {
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
      if (plan_.groups.size() == before && errors_.none()) {
        errors_.add("/select",
                    fmt::format("selects nothing of {}; select some of it, or remove it from "
                                "the list of dumps",
                                plan_.dumps[d].path));
      }
    }
  }

  // Of the first `tokens` tokens, 0: all; `pointer`: where that number is given.
  void add_group(std::size_t d, const PlannedSequence& sequence, const PlannedLayer& layer,
                 Index tokens, const std::string& pointer) {
    const std::string place = fmt::format("sequence {} of {}", sequence.name, plan_.dumps[d].path);
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
    plan_.groups.push_back(std::move(group));
  }

  Index selected_heads(int kv_heads, const Selection& where) const {
    Index heads = 0;
    for (int head = 0; head < kv_heads; ++head) {
      heads += selects(config_.select.kv_heads, head) && selects(where.kv_heads, head) ? 1 : 0;
    }
    return heads;
  }

  // Counted from the sizes of the axes, before a single cell is made.
  void refuse_too_many(bool all_are_kept, double memory_limit) {
    double& total = cells_ = 0.0;
    for (const WorkGroup& group : plan_.groups) {
      for (const SweepEntry& entry : config_.entries) {
        if (!selects(entry.where, group.sequence, group.layer)) continue;
        total += entry.cells(config_.seeds.size()) *
                 static_cast<double>(selected_heads(group.kv_heads, entry.where));
      }
    }
    if (total > static_cast<double>(kMaxCells)) {
      errors_.add("/algorithms", fmt::format("the sweep has {:.0f} cells, more than {}; shorten an "
                                             "axis, the seeds or the selection",
                                             total, kMaxCells));
    } else if (total == 0.0 && errors_.none()) {
      errors_.add("/algorithms",
                  "no cell is left: the \"where\" of every entry excludes the selection; "
                  "widen one of them");
    }
    double points = 0.0;
    for (const SweepEntry& entry : config_.entries) {
      points += static_cast<double>(entry.points()) * static_cast<double>(entry.storages.size());
    }
    const double bytes = plan_bytes(all_are_kept ? total : 0.0, points);
    constexpr double kSmall = 64.0 * 1024 * 1024;  // judged with what else a run needs
    if (bytes <= std::max(memory_limit, kSmall) || !errors_.none()) return;
    constexpr double kMiB = 1024.0 * 1024.0;
    errors_.add("/algorithms",
                fmt::format("describes {:.0f} cells, and the plan of them alone needs about {:.0f} "
                            "MiB, more than the limit of {:.0f} MiB; shorten an axis, the seeds or "
                            "the selection, or give a higher --memory-limit",
                            total, bytes / kMiB, memory_limit / kMiB));
  }

  std::optional<std::string> reason(const WorkGroup& group, const AlgorithmDescription& algorithm,
                                    const Params& params) const {
    if (group.rows.empty()) {
      if (scores_prompt(group) && group.prompt == 0) {
        return "no row to score: evaluate.rows asks for rows of the prompt, which is empty";
      }
      const Index first = group.shape.first_query;
      return first >= group.shape.tokens
                 ? fmt::format("no row to score: the dump has no query of the first {} tokens",
                               group.shape.tokens)
                 : fmt::format("no row to score: the dump has queries only from row {} on", first);
    }
    if (scores_prompt(group) && !algorithm.answers_prompt_rows) {
      return "evaluate.rows asks for rows of the prompt, and " + algorithm.id +
             " answers decode rows alone";
    }
    return reason_to_skip(algorithm, params, group.shape, group.prompt);
  }

  // Where every row sees every token there is no other row, and every method answers them.
  bool scores_prompt(const WorkGroup& group) const {
    return means_prompt_rows(config_.rows) && group.shape.causal;
  }

  // The layers and heads that a scoped point of an entry decides for together: what is selected of
  // the group's sequence or layer, whatever `only` leaves of it.
  std::shared_ptr<const Scope> scope_of(const WorkGroup& group, const SweepEntry& entry,
                                        ReplayScope of) const {
    Scope scope;
    std::set<int> heads;
    for (const WorkGroup& other : plan_.groups) {
      if (!shares_scope(other, group, entry, of)) continue;
      scope.layers.push_back(other.layer);
      for (int head = 0; head < other.kv_heads; ++head) {
        if (selects(config_.select.kv_heads, head) && selects(entry.where.kv_heads, head)) {
          heads.insert(head);
        }
      }
    }
    scope.kv_heads.assign(heads.begin(), heads.end());
    return std::make_shared<const Scope>(std::move(scope));
  }

  static bool shares_scope(const WorkGroup& other, const WorkGroup& group, const SweepEntry& entry,
                           ReplayScope of) {
    return other.dump == group.dump && other.sequence == group.sequence &&
           other.first_tokens == group.first_tokens &&
           (of == ReplayScope::kModel || other.layer == group.layer) &&
           selects(entry.where, other.sequence, other.layer);
  }

  // A model-scoped algorithm runs on all layers of its scope or on none.
  std::optional<std::string> reason_in_scope(const WorkGroup& group, const SweepEntry& entry,
                                             const Params& params) const {
    if (entry.algorithm->replay_scope(params) != ReplayScope::kModel) {
      return reason(group, *entry.algorithm, params);
    }
    for (const WorkGroup& other : plan_.groups) {
      if (!shares_scope(other, group, entry, ReplayScope::kModel)) continue;
      if (auto why = reason(other, *entry.algorithm, params)) {
        return fmt::format("layer {}: {}", other.layer, *why);
      }
    }
    return std::nullopt;
  }

  // One point of one entry; its parameters are shared by all its cells.
  struct Point {
    std::shared_ptr<const Params> params;
    std::shared_ptr<const Storage> storage;  // null: float
    std::string text;                        // canonical JSON of params
    std::string storage_text;                // and of the storage; empty: float
    SharedText label;
    bool randomised;
  };

  // The entry's, or where it gives none, the method of the cache file.
  static std::string label_of(const SweepEntry& entry, const Params& params) {
    if (entry.labelled) return entry.label;
    for (const auto& [name, value] : params.entries()) {
      if (const auto* file = std::get_if<CacheParameter>(&value)) return file->cache->method;
    }
    return entry.label;
  }

  void expand_points() {
    for (const SweepEntry& entry : config_.entries) {
      std::vector<Point>& points = points_.emplace_back();
      for (Index i = 0; i < entry.points(); ++i) {
        auto params = std::make_shared<const Params>(entry.point(i));
        const std::string text = params_json(*params).dump();
        const bool randomised = entry.algorithm->randomised(*params);
        const std::string label = label_of(entry, *params);
        for (const auto& storage : entry.storages) {
          points.push_back({params, storage, text,
                            storage ? storage_json(storage.get()).dump() : "",
                            storage ? label + " | " + storage_text(*storage) : label,
                            randomised || (storage && storage->is_randomised())});
        }
      }
    }
  }

  // A point on a group: its parameters as they are run, or why it is not.
  struct PointOfGroup {
    std::shared_ptr<const Params> params;
    SharedText skip_reason;
  };

  PointOfGroup on_group(const WorkGroup& group, const SweepEntry& entry, const Point& point) const {
    if (!asks_for_memory(*point.params) || group.rows.empty()) {
      return {point.params, reason_of_point(group, entry, point, *point.params)};
    }
    auto solved = solve_stored_memory(*entry.algorithm, *point.params, point.storage.get(),
                                      group.shape, group.prompt, config_.element_bytes);
    if (auto* why = std::get_if<std::string>(&solved)) return {point.params, std::move(*why)};
    auto params = std::make_shared<const Params>(std::get<Params>(std::move(solved)));
    auto reason = reason_of_point(group, entry, point, *params);
    return {std::move(params), std::move(reason)};
  }

  std::optional<std::string> reason_of_point(const WorkGroup& group, const SweepEntry& entry,
                                             const Point& point, const Params& params) const {
    auto why = reason_in_scope(group, entry, params);
    if (why || !point.storage) return why;
    if (scores_prompt(group)) {
      return "evaluate.rows asks for rows of the prompt, which are answered before " +
             storage_text(*point.storage) + " has written the cache";
    }
    return reason_to_skip(*point.storage, *entry.algorithm, params, group.shape, group.prompt);
  }

  // Why what a point names does not go with a KV head of the group, to skip the cell with.
  std::optional<std::string> misfit(const WorkGroup& group, int head, const SweepEntry& entry,
                                    const Point& point) {
    if (!entry.algorithm->misfit) return std::nullopt;
    for (const auto& [name, value] : point.params->entries()) {
      const auto* file = std::get_if<CacheParameter>(&value);
      if (file == nullptr || file->cache->dump.empty()) continue;
      if (file->cache->dump != plan_.dumps[group.dump].fingerprint) {
        return "the cache file is of another dump, with fingerprint " + file->cache->dump;
      }
    }
    const StreamId id{group.sequence, group.layer, head};
    auto found = entry.algorithm->misfit(*point.params, id, group.shape, group.prompt);
    if (!found) return std::nullopt;
    if (found->kind == Misfit::Kind::kError) {
      misfits_.add(child(child(entry.pointer, "params"), found->parameter),
                   to_string(point.params->at(found->parameter)), id, found->clause);
    }
    return std::move(found->clause);
  }

  void add_cells(std::size_t g, Only& only) {
    WorkGroup& group = plan_.groups[g];
    std::vector<std::vector<PointOfGroup>> here(config_.entries.size());
    for (std::size_t e = 0; e < config_.entries.size(); ++e) {
      const SweepEntry& entry = config_.entries[e];
      if (!selects(entry.where, group.sequence, group.layer)) continue;
      for (const Point& point : points_[e]) here[e].push_back(on_group(group, entry, point));
    }
    const GroupIdentity identity(plan_, group);
    for (int head = 0; head < group.kv_heads; ++head) {
      if (!selects(config_.select.kv_heads, head)) continue;
      for (std::size_t e = 0; e < config_.entries.size(); ++e) {
        const SweepEntry& entry = config_.entries[e];
        if (!selects(entry.where.kv_heads, head)) continue;
        for (std::size_t p = 0; p < here[e].size(); ++p) {
          const Point& point = points_[e][p];
          PlannedCell cell;
          cell.label = point.label;
          cell.group = g;
          cell.kv_head = head;
          cell.algorithm = entry.algorithm;
          cell.params = here[e][p].params;
          cell.storage = point.storage;
          cell.skip_reason = here[e][p].skip_reason;
          if (!cell.skip_reason) cell.skip_reason = misfit(group, head, entry, point);
          const ReplayScope scope = entry.algorithm->replay_scope(*point.params);
          if (scope != ReplayScope::kHead) cell.scope = scope_of(group, entry, scope);
          const std::string path = only.keeps_all() ? "" : cell_path(plan_, cell);
          auto ids = identity.cells(cell, point.text, point.storage_text);
          for (std::size_t s = 0; s < (point.randomised ? config_.seeds.size() : 1); ++s) {
            if (point.randomised) cell.seed = config_.seeds[s];
            cell.id = ids.id(cell.seed);
            if (!only.keeps_all() && !only.keeps(cell.id, path)) continue;
            group.cells.push_back(plan_.cells.size());
            plan_.cells.push_back(cell);
          }
        }
      }
    }
  }

  // A group whose cells `where` or `only` took away is not read.
  void drop_empty_groups() {
    std::vector<WorkGroup> kept;
    for (WorkGroup& group : plan_.groups) {
      if (group.cells.empty()) continue;
      for (const std::size_t cell : group.cells) plan_.cells[cell].group = kept.size();
      kept.push_back(std::move(group));
    }
    plan_.groups = std::move(kept);
  }

  const SweepConfig& config_;
  Plan& plan_;
  ErrorList errors_;
  HeadMisfits misfits_;
  std::vector<std::vector<Point>> points_;  // by entry
  double cells_ = 0.0;                      // of the sweep, before --only
  std::set<std::string> sequences_;         // of all dumps, once asked for
  std::set<int> layers_, heads_;
};

}  // namespace

double plan_bytes(double cells, double points) { return 210.0 * cells + 1280.0 * points; }

Plan make_plan(const SweepConfig& config, std::vector<PlannedDump> dumps,
               const std::vector<std::string>& only, const std::string& device,
               double memory_limit) {
  Plan plan;
  plan.name = config.name;
  plan.config = config.resolved;
  plan.dumps = std::move(dumps);
  plan.rows = config.rows;
  plan.device = device;
  plan.only = only;
  plan.element_bytes = config.element_bytes;
  plan.keep_rows = config.keep_rows;
  plan.keep_caches = config.keep_caches;
  plan.tokens_vary = config.tokens.size() > 1;
  Planner(config, plan).build(only, memory_limit);
  return plan;
}

}  // namespace kvbench
