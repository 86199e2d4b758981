#include "dump/layer_survey.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "dump/structure.hpp"

namespace kvbench {
namespace {

// The first note of a kind, and how many layers have one.
struct Finding {
  std::string place;
  std::string what;
  std::size_t count = 0;

  void add(const LayerSurvey& layer, std::string text) {
    if (count++ > 0) return;
    place = layer_path(layer.sequence, layer.layer);
    what = std::move(text);
  }
};

}  // namespace

std::size_t LayerSurvey::different_heads() const {
  return std::set<std::string>(heads.begin(), heads.end()).size();
}

std::optional<std::size_t> LayerSurvey::late_head() const {
  const auto latest = std::ranges::max_element(first_keys);
  if (latest == first_keys.end() || *latest == 0) return std::nullopt;
  return latest - first_keys.begin();
}

bool LayerSurvey::is_suspicious() const {
  return late_head() || (!all_zero() && (different_heads() < heads.size() || zero_tail() > 0));
}

std::vector<std::string> survey_notes(const std::string& path,
                                      const std::vector<LayerSurvey>& layers) {
  Finding exchanged, repeated, zeros, late, shared;
  std::map<std::pair<std::string, std::vector<std::string>>, int> first;  // by sequence and heads
  for (const LayerSurvey& layer : layers) {
    if (layer.heads.size() > static_cast<std::size_t>(layer.tokens)) {
      exchanged.add(layer, fmt::format("{} KV heads of {} tokens look exchanged; q, k and v are "
                                       "[heads, tokens, columns]",
                                       layer.heads.size(), layer.tokens));
    }
    if (const auto head = layer.late_head()) {
      const Index first = layer.first_keys[*head];
      const auto heads = std::ranges::count(layer.first_keys, first);
      late.add(layer, fmt::format(
                          "the keys of tokens 0 to {} are zero in KV head {}{}; {}", first - 1,
                          *head, heads > 1 ? fmt::format(" and {} more", heads - 1) : "",
                          first == layer.tokens ? "store keys as attention reads them"
                                                : "leave padding before a text out of q, k and v"));
    }
    if (layer.all_zero()) continue;
    const std::size_t different = layer.different_heads();
    if (different < layer.heads.size()) {
      repeated.add(layer, fmt::format("{} KV heads are copies of {}: memory is {:.3g} times the "
                                      "model's; capture k and v before repeat_kv",
                                      layer.heads.size(), different,
                                      static_cast<double>(layer.heads.size()) /
                                          static_cast<double>(different)));
    }
    if (layer.zero_tail() > 0) {
      zeros.add(layer,
                fmt::format("the keys of the last {} of {} tokens are zero in every KV head, as in "
                            "a static cache that is not full; store the first {} tokens alone, for "
                            "queries are those of the last positions",
                            layer.zero_tail(), layer.tokens, layer.tokens - layer.zero_tail()));
    }
    const auto [place, is_new] = first.emplace(std::pair{layer.sequence, layer.heads}, layer.layer);
    if (!is_new) {
      shared.add(layer, fmt::format("the keys and values are those of layer {}, compressed and "
                                    "counted once more; if the model shares them, leave k and v "
                                    "out here and write the attribute kv_layer = {}",
                                    place->second, place->second));
    }
  }
  std::vector<std::string> notes;
  for (const Finding& finding : {exchanged, repeated, zeros, late, shared}) {
    if (finding.count == 0) continue;
    notes.push_back(fmt::format(
        "{}: {}: {}{}", path, finding.place, finding.what,
        finding.count > 1 ? fmt::format(" (and {} more layers)", finding.count - 1) : ""));
  }
  return notes;
}

}  // namespace kvbench
