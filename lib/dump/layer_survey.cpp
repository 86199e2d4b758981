#include "dump/layer_survey.hpp"

#include <fmt/format.h>

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

bool LayerSurvey::is_suspicious() const {
  return !all_zero() && (different_heads() < heads.size() || zero_tail() > 0);
}

std::vector<std::string> survey_notes(const std::string& path,
                                      const std::vector<LayerSurvey>& layers) {
  Finding exchanged, repeated, zeros, shared;
  std::map<std::pair<std::string, std::vector<std::string>>, int> first;  // by sequence and heads
  for (const LayerSurvey& layer : layers) {
    if (layer.heads.size() > static_cast<std::size_t>(layer.tokens)) {
      exchanged.add(layer, fmt::format("{} KV heads of {} tokens look exchanged; q, k and v are "
                                       "[heads, tokens, columns]",
                                       layer.heads.size(), layer.tokens));
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
  for (const Finding& finding : {exchanged, repeated, zeros, shared}) {
    if (finding.count == 0) continue;
    notes.push_back(fmt::format(
        "{}: {}: {}{}", path, finding.place, finding.what,
        finding.count > 1 ? fmt::format(" (and {} more layers)", finding.count - 1) : ""));
  }
  return notes;
}

}  // namespace kvbench
