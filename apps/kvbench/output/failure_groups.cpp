#include "output/failure_groups.hpp"

#include <fmt/core.h>

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

void FailureGroups::add(const std::string& reason, std::size_t index, std::size_t count) {
  const auto [place, is_new] = find_.emplace(without_numbers(reason), groups_.size());
  if (is_new) {
    groups_.push_back({.reason = reason, .first = index, .count = 0});
    differ_.push_back(false);
  }
  FailureGroup& group = groups_[place->second];
  group.count += count;
  if (reason != group.reason) differ_[place->second] = true;
}

std::vector<FailureGroup> FailureGroups::all() const {
  std::vector<FailureGroup> all = groups_;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (differ_[k]) all[k].reason += " (and similar)";
  }
  return all;
}

std::vector<std::string> cell_lines(const std::vector<Json>& cells) {
  std::vector<std::string> lines;
  FailureGroups causes;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].contains("reason")) {
      causes.add(text_of(cells[i]["reason"]), i);
    } else {
      lines.push_back(cell_text(cells[i]));
    }
  }
  for (const FailureGroup& cause : causes.all()) {
    const std::string cell = cell_text(cells[cause.first]);
    lines.push_back(cause.count == 1 ? cell + ": " + cause.reason
                                     : fmt::format("{} cells: {}; the first: {}", cause.count,
                                                   cause.reason, cell));
  }
  return lines;
}

}  // namespace kvbench
