#include "sweep/make_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_set>
#include <variant>

#include "algorithms/memory_budget.hpp"
#include "json/document.hpp"
#include "json/pointer.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/group_selection.hpp"
#include "sweep/head_misfits.hpp"
#include "sweep/layer_records.hpp"
#include "sweep/named_files.hpp"
#include "sweep/only_filter.hpp"
#include "sweep/scored_rows.hpp"
#include "sweep/storage_axis.hpp"
#include "sweep/stored_budget.hpp"
#include "sweep/sweep_keys.hpp"
#include "system/hash.hpp"
#include "system/parallel.hpp"
#include "system/shortened.hpp"

namespace kvbench {
namespace {

static_assert(kMaxCells <= PlannedCells::kMaxSettings);
static_assert(kSeedCountRange.maximum <= PlannedCells::kMaxSeeds);

class Planner {
 public:
  Planner(const SweepConfig& config, Plan& plan)
      : config_(config), plan_(plan), errors_(config.path) {}

  void build(const std::vector<std::string>& only, double memory_limit) {
    errors_.add_all(config_.errors);
    plan_.groups = select_groups(config_, plan_.dumps, errors_);
    if (config_.errors.empty()) refuse_too_many(only.empty(), memory_limit);
    errors_.throw_if_any();
    take_files(config_, plan_, errors_);
    expand_points();
    plan_.cells.set_seeds(config_.seeds);
    if (only.empty()) plan_.cells.reserve(static_cast<std::size_t>(cells_));
    Only filter(only);
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) add_cells(g, filter);
    misfits_.report(errors_);
    filter.report_unused(errors_);
    errors_.throw_if_any();
    drop_empty_groups();
    add_layer_records(plan_);
    plan_.hash = hash_of_cells();
    std::unordered_set<const Params*> points;
    for (const PlannedSetting& setting : plan_.cells.settings())
      points.insert(setting.params.get());
    plan_.points = points.size();
  }

 private:
  // Counted from the sizes of the axes, before a single cell is made.
  void refuse_too_many(bool all_are_kept, double memory_limit) {
    double& total = cells_ = 0.0;
    for (const WorkGroup& group : plan_.groups) {
      for (const SweepEntry& entry : config_.entries) {
        if (!selects(entry.where, group.sequence, group.layer)) continue;
        total += entry.cells(config_.seeds.size()) *
                 selected_heads(config_.select, entry.where, group.kv_heads);
      }
    }
    if (total > kMaxCells) {
      errors_.add("/algorithms", fmt::format("the sweep has {} cells, more than {}; shorten an "
                                             "axis, the seeds or the selection",
                                             count_text(total), kMaxCells));
    } else if (total == 0.0 && errors_.none()) {
      errors_.add("/algorithms",
                  "no cell is left: the \"where\" of every entry excludes the selection; "
                  "widen one of them");
    }
    double points = 0.0;
    for (const SweepEntry& entry : config_.entries) {
      points += entry.points() * static_cast<double>(entry.storages.size());
    }
    const double bytes = plan_bytes(all_are_kept ? total : 0.0, points);
    constexpr double kSmall = 64.0 * 1024 * 1024;  // judged with what else a run needs
    if (bytes <= std::max(memory_limit, kSmall) || !errors_.none()) return;
    constexpr double kMiB = 1024.0 * 1024.0;
    errors_.add("/algorithms",
                fmt::format("describes {} cells, and the plan of them alone needs about {} "
                            "MiB, more than the limit of {:.0f} MiB; shorten an axis, the seeds or "
                            "the selection, or give a higher --memory-limit",
                            count_text(total), count_text(bytes / kMiB), memory_limit / kMiB));
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
    if (!scores_prompt(group) && algorithm.masks_prompt && group.shape.causal) {
      return algorithm.id +
             " leaves tokens out in rows of the prompt alone; score these with "
             "\"evaluate\": {\"rows\": {\"prompt\": {\"every\": 8}}}";
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

  // A model-scoped algorithm runs on all layers of its scope or on none. Where it could run on some
  // of them, the reason says how to select these.
  std::optional<std::string> reason_in_scope(const WorkGroup& group, const SweepEntry& entry,
                                             const Params& params) const {
    if (entry.algorithm->replay_scope(params) != ReplayScope::kModel) {
      return reason(group, *entry.algorithm, params);
    }
    std::string refused;
    std::vector<int> able;
    for (const WorkGroup& other : plan_.groups) {
      if (!shares_scope(other, group, entry, ReplayScope::kModel)) continue;
      const auto why = reason(other, *entry.algorithm, params);
      if (!why) able.push_back(other.layer);
      if (why && refused.empty()) refused = fmt::format("layer {}: {}", other.layer, *why);
    }
    if (refused.empty()) return std::nullopt;
    if (able.empty()) return refused;
    const std::string layers = fmt::format("{}", fmt::join(able, ","));
    return fmt::format(
        "{}; {} decides for all selected layers together: select those that it can run on by "
        "--layers {}, or by \"where\": {{\"layers\": [{}]}} in its entry",
        refused, entry.algorithm->id, layers, layers);
  }

  // One point of one entry; its parameters are shared by all its cells.
  struct Point {
    std::shared_ptr<const Params> params;
    std::shared_ptr<const Storage> storage;  // null: float
    std::string text;                        // canonical JSON of params
    std::string storage_text;                // and of the storage; empty: float
    SharedText label;
    bool randomised;
    std::optional<std::size_t> planned = std::nullopt;  // the setting that its last cells are of
  };

  // The entry's, or where it gives none, the method of the cache file.
  static std::string label_of(const SweepEntry& entry, const Params& params) {
    if (entry.labelled) return entry.label;
    for (const auto& [name, value] : params.entries()) {
      if (const auto* file = std::get_if<CacheParameter>(&value)) return file->content->method;
    }
    return entry.label;
  }

  void expand_points() {
    for (const SweepEntry& entry : config_.entries) {
      std::vector<Point>& points = points_.emplace_back();
      for (Index i = 0; i < entry.points(); ++i) {
        auto params = std::make_shared<const Params>(entry.point(i));
        const std::string text = exact_line(params_json(*params));
        const bool randomised = entry.algorithm->randomised(*params);
        const std::string label = label_of(entry, *params);
        for (const auto& storage : entry.storages) {
          points.push_back({params, storage, text,
                            storage ? exact_line(storage_json(storage.get())) : "",
                            storage ? label + " | " + storage_text(*storage) : label,
                            randomised || (storage && storage->is_randomised())});
        }
      }
    }
  }

  // A point on a group: with its parameters as they are run there, or why it is not.
  PlannedSetting on_group(const WorkGroup& group, const SweepEntry& entry, const Point& point) {
    PlannedSetting setting{.label = point.label,
                           .algorithm = entry.algorithm,
                           .params = point.params,
                           .scope = nullptr,
                           .storage = storage_on(group, point),
                           .skip_reason = {},
                           .is_seeded = point.randomised};
    if (point.storage && !setting.storage) {
      setting.storage = point.storage;
      setting.skip_reason = fmt::format(
          "by_layer of its storage has nothing for layer {}; add an element without layers",
          group.layer);
      return setting;
    }
    if (asks_for_memory(*point.params) && !group.rows.empty()) {
      auto solved = solve_stored_memory(*entry.algorithm, *point.params, setting.storage.get(),
                                        group.shape, group.prompt, config_.element_bytes);
      if (auto* why = std::get_if<std::string>(&solved)) {
        setting.skip_reason = std::move(*why);
        return setting;
      }
      setting.params = std::make_shared<const Params>(std::get<Params>(std::move(solved)));
    }
    setting.skip_reason = reason_of_setting(group, entry, setting);
    return setting;
  }

  // The point's storage on the group's layer, one for all its cells; null also where it has none.
  std::shared_ptr<const Storage> storage_on(const WorkGroup& group, const Point& point) {
    if (!point.storage || !point.storage->by_layer) return point.storage;
    const auto [place, is_new] = of_layers_.try_emplace({point.storage.get(), group.layer});
    if (is_new) place->second = at_layer(point.storage, group.layer);
    return place->second;
  }

  std::optional<std::string> reason_of_setting(const WorkGroup& group, const SweepEntry& entry,
                                               const PlannedSetting& setting) const {
    if (setting.storage && entry.algorithm->masks_prompt && group.shape.causal) {
      return fmt::format(
          "{} leaves tokens out in rows of the prompt alone, before {} has written the cache; give "
          "it \"storage\": \"float\"",
          entry.algorithm->id, storage_text(*setting.storage));
    }
    auto why = reason_in_scope(group, entry, *setting.params);
    if (why || !setting.storage) return why;
    if (scores_prompt(group)) {
      return "evaluate.rows asks for rows of the prompt, which attend to keys and values that no "
             "codec has written; leave storage out, or score decode rows";
    }
    return reason_to_skip(*setting.storage, *entry.algorithm, *setting.params, group.shape,
                          group.prompt);
  }

  // Why what a point names does not go with a KV head of the group, to skip the cell with.
  std::optional<std::string> misfit(const WorkGroup& group, int head, const SweepEntry& entry,
                                    const Point& point, const Storage* storage) {
    const StreamId id{group.sequence, group.layer, head};
    if (storage != nullptr) {
      if (auto found = misfit_of_files(plan_.dumps[group.dump], group, *storage)) {
        if (found->kind == Misfit::Kind::kError) {
          misfits_.add(entry.storage_pointer, found->path, id, found->clause);
        }
        return std::move(found->clause);
      }
    }
    auto found = misfit_of_files(plan_.dumps[group.dump], group, *entry.algorithm, *point.params);
    if (!found && entry.algorithm->misfit) {
      found = entry.algorithm->misfit(*point.params, id, group.shape, group.prompt);
    }
    if (!found) return std::nullopt;
    if (found->kind == Misfit::Kind::kError) {
      misfits_.add(entry.place_of(found->parameter), to_string(point.params->at(found->parameter)),
                   id, found->clause);
    }
    return std::move(found->clause);
  }

  // The settings of an entry on a group, by point.
  std::vector<PlannedSetting> settings_on(const WorkGroup& group, std::size_t e) {
    const SweepEntry& entry = config_.entries[e];
    std::vector<PlannedSetting> settings;
    if (!selects(entry.where, group.sequence, group.layer)) return settings;
    std::map<ReplayScope, std::shared_ptr<const Scope>> scopes = {{ReplayScope::kHead, nullptr}};
    for (const Point& point : points_[e]) {
      PlannedSetting setting = on_group(group, entry, point);
      const ReplayScope of = entry.algorithm->replay_scope(*point.params);
      if (scopes.count(of) == 0) scopes[of] = scope_of(group, entry, of);
      setting.scope = scopes[of];
      settings.push_back(std::move(setting));
    }
    return settings;
  }

  void add_cells(std::size_t g, Only& only) {
    WorkGroup& group = plan_.groups[g];
    const std::size_t first = plan_.cells.size();
    std::vector<std::vector<PlannedSetting>> settings;
    for (std::size_t e = 0; e < config_.entries.size(); ++e) {
      settings.push_back(settings_on(group, e));
    }
    const GroupIdentity identity(plan_, group);
    for (int head = 0; head < group.kv_heads; ++head) {
      if (!selects(config_.select.kv_heads, head)) continue;
      for (std::size_t e = 0; e < config_.entries.size(); ++e) {
        const SweepEntry& entry = config_.entries[e];
        if (!selects(entry.where.kv_heads, head)) continue;
        for (std::size_t p = 0; p < settings[e].size(); ++p) {
          PlannedSetting setting = settings[e][p];
          if (!setting.skip_reason) {
            setting.skip_reason = misfit(group, head, entry, points_[e][p], setting.storage.get());
          }
          add_cells_of(g, head, points_[e][p], setting, identity, only);
        }
      }
    }
    group.cells = CellRange(first, plan_.cells.size());
  }

  // Adds the cells of one point on one KV head.
  void add_cells_of(std::size_t g, int head, Point& point, const PlannedSetting& setting,
                    const GroupIdentity& identity, Only& only) {
    const std::string path = only.keeps_all() ? "" : cell_path(plan_.groups[g], setting, head);
    const auto cells = identity.cells(setting, head, point.text, point.storage_text);
    const std::size_t count = setting.is_seeded ? config_.seeds.size() : 1;
    bool is_planned = false;
    constexpr std::size_t kBlock = 65536;
    for (std::size_t first = 0; first < count; first += kBlock) {
      make_ids(cells, setting.is_seeded, first, std::min(kBlock, count - first));
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (!only.keeps_all() && !only.keeps(ids_[i], path)) continue;
        if (!is_planned) plan_setting(setting, point);
        is_planned = true;
        plan_.cells.add(g, head, *point.planned, first + i, ids_[i]);
      }
    }
  }

  // Into ids_, of the cells with these seeds.
  void make_ids(const GroupIdentity::Cells& cells, bool is_seeded, std::size_t first,
                std::size_t count) {
    ids_.resize(count);
    constexpr std::size_t kTogether = 4096;
    const auto make = [&](std::size_t part) {
      GroupIdentity::Cells made = cells;
      for (std::size_t i = part; i < std::min(part + kTogether, count); ++i) {
        ids_[i] = made.id(is_seeded ? std::optional(config_.seeds[first + i]) : std::nullopt);
      }
    };
    if (count <= kTogether) {  // there may be millions of points, and threads take longer to wake
      make(0);
    } else {
      parallel_for((count + kTogether - 1) / kTogether, [&](Index i) { make(i * kTogether); });
    }
  }

  // As the last of its point, where nothing has changed.
  void plan_setting(const PlannedSetting& setting, Point& point) {
    if (point.planned) {
      const PlannedSetting& last = plan_.cells.settings()[*point.planned];
      const bool same_scope = last.scope == setting.scope ||
                              (last.scope && setting.scope && *last.scope == *setting.scope);
      if (last.params == setting.params && last.storage == setting.storage &&
          last.skip_reason == setting.skip_reason && same_scope) {
        return;
      }
    }
    point.planned = plan_.cells.add_setting(setting);
  }

  std::string hash_of_cells() const {
    Hash128 hash;
    for (std::size_t c = 0; c < plan_.cells.size(); ++c) {
      const std::array<char, 32> digits = plan_.cells.id(c).digits();
      hash.add(digits.data(), digits.size());
      hash.add("\n", 1);
    }
    return hash.hex();
  }

  // A group whose cells `where` or `only` took away is not read.
  void drop_empty_groups() {
    std::vector<std::size_t> place_of;  // by the group's place until now
    std::vector<WorkGroup> kept;
    for (WorkGroup& group : plan_.groups) {
      place_of.push_back(kept.size());
      if (!group.cells.empty()) kept.push_back(std::move(group));
    }
    plan_.groups = std::move(kept);
    plan_.cells.renumber_groups(place_of);
  }

  const SweepConfig& config_;
  Plan& plan_;
  ErrorList errors_;
  HeadMisfits misfits_;
  std::vector<std::vector<Point>> points_;  // by entry
  // Storages that differ by layer, on a layer.
  std::map<std::pair<const Storage*, int>, std::shared_ptr<const Storage>> of_layers_;
  std::vector<Key128> ids_;  // ids of a block of seeds of a point on a KV head
  double cells_ = 0.0;       // cells of the sweep, before --only
};

}  // namespace

double plan_bytes(double cells, double points) { return 106.0 * cells + 1800.0 * points; }

Plan make_plan(const SweepConfig& config, std::vector<PlannedDump> dumps,
               const std::vector<std::string>& only, const std::string& device,
               double memory_limit) {
  Plan plan;
  plan.name = config.name;
  plan.config = config.resolved;
  plan.dumps = std::move(dumps);
  for (const PlannedDump& dump : plan.dumps) {
    for (const PlannedSequence& sequence : dump.sequences) {
      plan.dump_layers += sequence.layers.size();
    }
  }
  for (const SweepEntry& entry : config.entries) {
    if (entry.composition) plan.compositions.push_back(entry.composition);
  }
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
