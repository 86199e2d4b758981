#include "output/results_table.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "output/cell_text.hpp"
#include "output/table.hpp"
#include "output/terminal.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kMaxNotes = 8;
constexpr const char* kInterval = "95 %";  // title of the columns of intervals

struct Setting {
  const SettingMeans* means;
  Json params;                     // without what asks for memory
  std::optional<double> asks_for;  // fraction of the exact cache
};

struct Method {
  std::string name;
  VaryingParams params;
  std::vector<Setting> settings;
  std::vector<const Setting*> at;  // by memory; null: none
  const Setting* shown = nullptr;  // whose details are shown next to it
  bool is_above = false;           // every setting takes more than the memories
};

std::string percent(double part) { return fmt::format("{:.4g}%", 100.0 * part); }

// Solved budgets reach a memory to the byte, and the part of it is rounded.
bool fits(const Setting& setting, double memory) {
  return setting.means->memory_fraction && *setting.means->memory_fraction <= memory * (1 + 1e-9);
}

Setting setting_of(const SettingMeans& means) {
  Setting setting{&means, Json::object(), std::nullopt};
  const Json params = parse_line(means.params);
  for (const auto& [name, value] : params.items()) {
    const auto memory = value.is_object() ? value.find("memory") : value.end();
    if (memory != value.end() && memory->is_number()) {
      setting.asks_for = memory->get<double>();
    } else {
      setting.params[name] = value;
    }
  }
  return setting;
}

std::vector<Method> methods_of(const ComparedSettings& compared) {
  std::vector<Method> methods;
  std::map<std::string, std::size_t> find;
  for (const SettingMeans& means : compared.settings) {
    const auto [place, is_new] = find.try_emplace(means.method(), methods.size());
    if (is_new) {
      std::string name = label_text(means.label, means.algorithm);
      if (means.tokens) name += fmt::format(", {} tokens", *means.tokens);
      methods.emplace_back().name = std::move(name);
    }
    Method& method = methods[place->second];
    method.settings.push_back(setting_of(means));
    method.params.add(method.settings.back().params);
  }
  return methods;
}

// The memories that parameters ask for, ascending; empty if none does.
std::vector<double> memories_of(const std::vector<Method>& methods) {
  std::set<double> memories;
  for (const Method& method : methods) {
    for (const Setting& setting : method.settings) {
      if (setting.asks_for) memories.insert(*setting.asks_for);
    }
  }
  return {memories.begin(), memories.end()};
}

// The setting with the lowest error of those for which `counts` is true; null without one.
template <class Counts>
const Setting* best_of(const Method& method, const Counts& counts) {
  const Setting* best = nullptr;
  for (const Setting& setting : method.settings) {
    const std::optional<double>& error = setting.means->frobenius.mean;
    if (!error || !counts(setting)) continue;
    if (best == nullptr || *error < *best->means->frobenius.mean) best = &setting;
  }
  return best;
}

void choose_settings(Method& method, const std::vector<double>& memories, std::size_t middle) {
  for (const double memory : memories) {
    const Setting* at = best_of(method, [&](const Setting& s) { return s.asks_for == memory; });
    if (at == nullptr) {
      at = best_of(method, [&](const Setting& s) { return !s.asks_for && fits(s, memory); });
    }
    method.at.push_back(at);
  }
  for (std::size_t m = middle; m < memories.size() && method.shown == nullptr; ++m) {
    method.shown = method.at[m];
  }
  for (std::size_t m = middle; m-- > 0 && method.shown == nullptr;) method.shown = method.at[m];
  if (method.shown != nullptr) return;
  method.shown = best_of(method, [](const Setting&) { return true; });
  method.is_above = method.shown != nullptr;
}

std::string number_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "-";
}

std::string interval_text(const Setting* setting) {
  if (setting == nullptr || !setting->means->frobenius.interval) return "-";
  const Interval& interval = *setting->means->frobenius.interval;
  return fmt::format("{:.2g} .. {:.2g}", interval.low, interval.high);
}

std::string error_text(const Setting* setting) {
  return setting == nullptr ? "-" : number_text(setting->means->frobenius.mean);
}

std::string described(const Method& method, const Setting& setting) {
  std::string text = params_text(method.params.of(setting.params));
  if (setting.asks_for)
    text += (text.empty() ? "" : " ") + ("memory=" + percent(*setting.asks_for));
  return text;
}

// "quest has 2 of 6", with the setting where others of the method have more; empty if every setting
// has all.
std::string count_note(const Method& method, Index asked) {
  std::vector<const Setting*> fewer;
  Index least = asked;
  Index most = 0;
  for (const Setting& setting : method.settings) {
    least = std::min(least, setting.means->units);
    most = std::max(most, setting.means->units);
    if (setting.means->units < asked) fewer.push_back(&setting);
  }
  if (fewer.empty()) return "";
  std::string text = fmt::format("{} has {} of {}", method.name, least, asked);
  if (least == most) return text;
  if (fewer.size() == 1) return text + " with " + described(method, *fewer.front());
  return text + fmt::format(" or more in {} of {} settings", fewer.size(), method.settings.size());
}

std::string joined(std::vector<std::string> notes) {
  if (notes.size() > kMaxNotes) {
    const std::size_t more = notes.size() - kMaxNotes;
    notes.resize(kMaxNotes);
    notes.push_back(fmt::format("and {} more", more));
  }
  return fmt::format("{}", fmt::join(notes, "; "));
}

// Which KV heads the numbers are over, where that is not all of every method.
std::string heads_text(const ComparedSettings& compared, const std::vector<Method>& methods,
                       std::size_t columns) {
  std::vector<std::string> notes;
  Index left_out = 0;
  for (const Method& method : methods) {
    if (std::string note = count_note(method, compared.asked); !note.empty()) {
      notes.push_back(std::move(note));
    }
    left_out += std::ranges::count_if(method.settings, [](const Setting& setting) {
      return setting.means->units > 0 && !setting.means->is_compared;
    });
  }
  if (notes.empty()) return "";
  std::string text = compared.units == compared.asked
                         ? fmt::format("over all {} KV heads", compared.asked)
                         : fmt::format("over {} of {} KV heads, those that every method has",
                                       compared.units, compared.asked);
  if (left_out > 0) text += fmt::format(", without {} settings that lack some of them", left_out);
  return paragraph(text + ": " + joined(std::move(notes)), columns);
}

// Metrics that some of these KV heads lack, and have no mean therefore.
std::string undefined_text(const ComparedSettings& compared, const std::vector<Method>& methods,
                           std::size_t columns) {
  std::vector<std::string> notes;
  for (const Method& method : methods) {
    for (const Setting& setting : method.settings) {
      for (const auto& [metric, name] :
           {std::pair{&setting.means->frobenius, "relative_frobenius_error"},
            std::pair{&setting.means->spectral, "relative_spectral_error"},
            std::pair{&setting.means->l2, "relative_l2.mean"}}) {
        if (metric->undefined == 0) continue;
        const std::string which = described(method, setting);
        notes.push_back(fmt::format("{} of {}{}{} in {} of {}", name, method.name,
                                    which.empty() ? "" : " ", which, metric->undefined,
                                    compared.units));
      }
    }
  }
  if (notes.empty()) return "";
  return paragraph("null in KV heads, and without a mean: " + joined(std::move(notes)), columns);
}

std::string interval_note(const ComparedSettings& compared, std::size_t columns) {
  constexpr Index kFewGroups = 5;
  if (compared.groups < 2 || compared.groups >= kFewGroups) return "";
  const char* groups = compared.over == UnitLevel::kText ? "texts carry these intervals; more texts"
                       : compared.over == UnitLevel::kLayer
                           ? "layers carry these intervals; more "
                             "texts or layers"
                           : "KV heads carry these intervals; more "
                             "texts or layers";
  return paragraph(fmt::format("{} {} narrow them", compared.groups, groups), columns);
}

// How many KV heads each setting has, of settings that have none in common.
std::string counts_table(const ComparedSettings& compared, const std::vector<Method>& methods,
                         std::size_t columns) {
  Table table({{"method", Align::kLeft}, {"KV heads"}, {"setting", Align::kLeft}});
  bool any = false;
  for (const Method& method : methods) {
    for (const Setting& setting : method.settings) {
      any = any || setting.means->units > 0;
      table.add({method.name, fmt::format("{} of {}", setting.means->units, compared.asked),
                 described(method, setting)});
    }
  }
  if (!any) return "";
  return paragraph(
             "no KV head has a number of every method, so that none is ranked; results.json has "
             "each setting's own means",
             columns) +
         "\n" + table.text(columns);
}

// Whether rows read much less than the cache holds: by methods that choose what each row reads.
bool reads_less(const Method& method) {
  if (method.shown == nullptr) return false;
  const SettingMeans& means = *method.shown->means;
  return means.memory_fraction && means.traffic_fraction &&
         *means.traffic_fraction < 0.8 * *means.memory_fraction;
}

std::string title(const std::vector<double>& memories, std::size_t middle, bool are_asked_for,
                  bool has_traffic) {
  const std::string at = percent(memories[middle]);
  return fmt::format(
      "relative Frobenius error, lowest at {} first. A column has {}. The columns on the right are "
      "for {} or the memory nearest to it: the relative spectral error, the mean relative error of "
      "a row (relative_l2.mean), the memory that is held, {}and the setting",
      at,
      are_asked_for
          ? "each method's setting that asks for this fraction of the exact cache, or its best one "
            "within it"
          : "each method's best setting that holds at most this fraction of the exact cache, often "
            "much less; --memory compares methods at equal memory",
      at, has_traffic ? "the part of the exact cache that a row reads (traffic.fraction), " : "");
}

}  // namespace

std::string results_table(const ComparedSettings& compared, std::size_t columns) {
  std::vector<Method> methods = methods_of(compared);
  if (compared.units == 0) return counts_table(compared, methods, columns);
  std::vector<double> memories = memories_of(methods);
  const bool are_asked_for = !memories.empty();
  if (!are_asked_for) memories = {0.125, 0.25, 0.5};
  const std::size_t middle = (memories.size() - 1) / 2;
  for (Method& method : methods) choose_settings(method, memories, middle);
  std::ranges::stable_sort(methods, [&](const Method& a, const Method& b) {
    const Setting* of_a = a.at[middle];
    const Setting* of_b = b.at[middle];
    if (of_a == nullptr || of_b == nullptr) return of_a != nullptr && of_b == nullptr;
    return *of_a->means->frobenius.mean < *of_b->means->frobenius.mean;
  });
  const auto any_method = [&](const auto& holds) { return std::ranges::any_of(methods, holds); };
  const auto has_error_at = [&](std::size_t m) {
    return any_method([&](const Method& method) { return method.at[m] != nullptr; });
  };
  const auto has_interval_at = [&](std::size_t m) {
    return any_method([&](const Method& method) { return interval_text(method.at[m]) != "-"; });
  };
  const auto setting_text = [](const Method& method) {
    return method.shown == nullptr ? "" : params_text(method.params.of(method.shown->params));
  };

  // The columns, and what goes first where the terminal is narrow: what is far from the middle.
  const auto is_shown_at = [&](std::size_t m) {
    return are_asked_for || m == middle || has_error_at(m);
  };
  const int count = static_cast<int>(memories.size());
  std::vector<Column> shape = {{"method", Align::kLeft, 9}};
  for (std::size_t m = 0; m < memories.size(); ++m) {
    if (!is_shown_at(m)) continue;
    const int distance = std::abs(static_cast<int>(m) - static_cast<int>(middle));
    shape.push_back(
        {percent(memories[m]), Align::kRight, 8, distance == 0 ? 0 : 2 * count + 5 - distance});
    if (!has_interval_at(m)) continue;
    shape.push_back(
        {kInterval, Align::kRight, 8, distance == 0 ? count + 2 : count + 1 - distance});
  }
  const bool is_any_above = any_method([](const Method& method) { return method.is_above; });
  if (is_any_above) {
    shape.push_back({"> " + percent(memories.back()), Align::kRight, 8, 2 * count + 6});
  }
  shape.push_back({"spectral", Align::kRight, 8, 2 * count + 8});
  shape.push_back({"row mean", Align::kRight, 8, 2 * count + 7});
  shape.push_back({"memory", Align::kRight, 6, count + 1});
  const bool has_traffic = any_method(reads_less);
  if (has_traffic) shape.push_back({"reads", Align::kRight, 6, count + 4});
  const bool has_settings =
      any_method([&](const Method& method) { return !setting_text(method).empty(); });
  if (has_settings) shape.push_back({"setting", Align::kLeft, 0, count + 3});
  Table table(std::move(shape));
  for (const Method& method : methods) {
    std::vector<std::string> row = {method.name};
    for (std::size_t m = 0; m < memories.size(); ++m) {
      if (!is_shown_at(m)) continue;
      row.push_back(error_text(method.at[m]));
      if (has_interval_at(m)) row.push_back(interval_text(method.at[m]));
    }
    if (is_any_above) row.push_back(method.is_above ? error_text(method.shown) : "-");
    const SettingMeans* shown = method.shown == nullptr ? nullptr : method.shown->means;
    row.push_back(shown == nullptr ? "-" : number_text(shown->spectral.mean));
    row.push_back(shown == nullptr ? "-" : number_text(shown->l2.mean));
    row.push_back(shown == nullptr || !shown->memory_fraction
                      ? "-"
                      : fmt::format("{:.1f}%", 100.0 * *shown->memory_fraction));
    if (has_traffic) {
      row.push_back(shown == nullptr || !shown->traffic_fraction
                        ? "-"
                        : fmt::format("{:.1f}%", 100.0 * *shown->traffic_fraction));
    }
    if (has_settings) row.push_back(setting_text(method));
    table.add(std::move(row));
  }
  std::string text = paragraph(title(memories, middle, are_asked_for, has_traffic), columns) + "\n";
  const std::string lines = table.text(columns);
  text += lines;
  std::string notes =
      heads_text(compared, methods, columns) + undefined_text(compared, methods, columns);
  if (lines.find(kInterval) != std::string::npos) notes += interval_note(compared, columns);
  if (!notes.empty()) text += "\n" + notes;
  return text;
}

}  // namespace kvbench
