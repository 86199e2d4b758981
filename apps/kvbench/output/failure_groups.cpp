#include "output/failure_groups.hpp"

#include <fmt/core.h>

#include <map>

#include "output/cell_text.hpp"

namespace kvbench {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string without_numbers(const std::string& reason) {
  std::string out;
  for (const char c : reason) {
    if (!is_digit(c)) {
      out += c;
    } else if (out.empty() || out.back() != '0') {
      out += '0';
    }
  }
  return out;
}

}  // namespace

std::vector<FailureGroup> group_failures(const std::vector<std::string>& reasons) {
  std::vector<FailureGroup> found;
  std::vector<bool> differ;
  std::map<std::string, std::size_t> find;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    const auto [place, is_new] = find.emplace(without_numbers(reasons[i]), found.size());
    if (is_new) {
      found.push_back({.reason = reasons[i], .first = i, .count = 0});
      differ.push_back(false);
    }
    ++found[place->second].count;
    if (reasons[i] != reasons[found[place->second].first]) differ[place->second] = true;
  }
  for (std::size_t k = 0; k < found.size(); ++k) {
    if (differ[k]) found[k].reason += " (and similar)";
  }
  return found;
}

std::vector<std::string> cell_lines(const std::vector<Json>& cells) {
  std::vector<std::string> lines;
  std::vector<std::string> reasons;
  std::vector<const Json*> explained;
  for (const Json& cell : cells) {
    if (!cell.contains("reason")) {
      lines.push_back(cell_text(cell));
      continue;
    }
    reasons.push_back(text_of(cell["reason"]));
    explained.push_back(&cell);
  }
  for (const FailureGroup& cause : group_failures(reasons)) {
    const std::string cell = cell_text(*explained[cause.first]);
    lines.push_back(cause.count == 1 ? cell + ": " + cause.reason
                                     : fmt::format("{} cells: {}; the first: {}", cause.count,
                                                   cause.reason, cell));
  }
  return lines;
}

}  // namespace kvbench
