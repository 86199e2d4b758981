// "Did you mean": the known word that an unknown one was probably meant to be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvbench {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
// string alignment), ASCII case ignored.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(x) == lower(y);
  };
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// The nearest of `known` to `word` (the first of equals) if it is near enough to be a typo: one
// edit per three letters, at least one, and fewer edits than letters; else, if `word` begins
// exactly one of them (two letters or more), that one.
inline std::optional<std::string> nearest_word(std::string_view word,
                                               const std::vector<std::string>& known) {
  if (word.empty() || word.size() > 100) return std::nullopt;
  const std::string* best = nullptr;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    if (longer - shorter >= least) continue;  // as many letters have to be inserted
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least && distance < std::max(word.size(), candidate.size())) {
      least = distance;
      best = &candidate;
    }
  }
  if (best == nullptr && word.size() >= 2) {
    for (const std::string& candidate : known) {
      if (candidate.compare(0, word.size(), word) != 0) continue;
      if (best != nullptr) return std::nullopt;
      best = &candidate;
    }
  }
  return best == nullptr ? std::nullopt : std::optional<std::string>(*best);
}

// "; did you mean X?", or nothing.
inline std::string did_you_mean(const std::optional<std::string>& near) {
  return near ? "; did you mean " + *near + "?" : "";
}
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  return did_you_mean(nearest_word(word, known));
}

}  // namespace kvbench
