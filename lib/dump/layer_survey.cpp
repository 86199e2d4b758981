#include "dump/layer_survey.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "dump/structure.hpp"

namespace kvbench {
namespace {

// The first note of a kind, and how many layers, or sequences, have one.
struct Finding {
  const char* of = "layers";
  std::string place;
  std::string what;
  std::size_t count = 0;

  void add(const LayerSurvey& layer, std::string text) {
    add(layer_path(layer.sequence, layer.layer), std::move(text));
  }
  void add(std::string where, std::string text) {
    if (count++ > 0) return;
    place = std::move(where);
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
  Finding repeated_text{.of = "sequences", .place = {}, .what = {}};
  std::map<std::pair<std::string, std::vector<std::string>>, int> first;  // by sequence and heads
  std::map<std::string, std::map<int, std::vector<std::string>>> texts;   // by sequence
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
    texts[layer.sequence][layer.layer] = layer.heads;
    const std::size_t different = layer.different_heads();
    if (different < layer.heads.size()) {
      repeated.add(layer, fmt::format("{} KV heads are copies of {}: memory is {:.3g} times the "
                                      "model's; capture k and v before repeat_kv",
                                      layer.heads.size(), different,
                                      static_cast<double>(layer.heads.size()) / different));
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
  std::map<std::map<int, std::vector<std::string>>, std::string> known;  // the first sequence
  for (const auto& [sequence, tensors] : texts) {
    const auto [same, is_new] = known.emplace(tensors, sequence);
    if (is_new) continue;
    repeated_text.add(
        "/sequences/" + sequence,
        fmt::format("the keys and values are those of sequence {}; it counts as one more text, and "
                    "intervals over texts are too narrow; list the others in select.sequences",
                    same->second));
  }
  std::vector<std::string> notes;
  for (const Finding& finding : {exchanged, repeated, zeros, late, shared, repeated_text}) {
    if (finding.count == 0) continue;
    notes.push_back(fmt::format(
        "{}: {}: {}{}", path, finding.place, finding.what,
        finding.count > 1 ? fmt::format(" (and {} more {})", finding.count - 1, finding.of) : ""));
  }
  return notes;
}

}  // namespace kvbench
