#include "output/table.hpp"

#include <algorithm>
#include <utility>

#include "output/terminal.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kDropped = -1;
// Narrower than the first a column is only once no other can be dropped, than the second never.
constexpr std::size_t kWrapped = 20;
constexpr std::size_t kNarrowest = 6;

std::string without_spaces_at_end(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace

Table::Table(std::vector<Column> columns, std::string gap, std::string indent)
    : columns_(std::move(columns)), gap_(std::move(gap)), indent_(std::move(indent)) {}

void Table::add(std::vector<std::string> row) {
  row.resize(columns_.size());
  add_spanning(std::move(row));
}

void Table::add_spanning(std::vector<std::string> row) {
  for (std::string& text : row) text = one_line(text);
  rows_.push_back(std::move(row));
}

std::string Table::text(std::size_t columns) const {
  const Layout layout = layout_within(columns);
  Row titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  const bool has_titles =
      std::any_of(titles.begin(), titles.end(), [](const auto& title) { return !title.empty(); });
  std::string out = has_titles ? lines(titles, layout, columns) : "";
  for (const Row& row : rows_) out += lines(row, layout, columns);
  return out;
}

Table::Layout Table::natural_layout(bool with_minimum) const {
  Layout layout;
  for (const Column& column : columns_) {
    layout.push_back(std::max(with_minimum ? column.width : 0, display_width(column.title)));
  }
  for (const Row& row : rows_) {
    const std::size_t own = row.size() < columns_.size() ? row.size() - 1 : row.size();
    for (std::size_t i = 0; i < own; ++i) layout[i] = std::max(layout[i], display_width(row[i]));
  }
  return layout;
}

std::size_t Table::line_width(const Layout& layout) const {
  std::size_t width = indent_.size();
  std::size_t shown = 0;
  for (const std::size_t each : layout) {
    if (each == kDropped) continue;
    width += each + (shown++ > 0 ? gap_.size() : 0);
  }
  return width;
}

// Takes from the widest column on the left until the line fits or all of them are `least`.
void Table::narrow(Layout& layout, std::size_t columns, std::size_t least) const {
  while (line_width(layout) > columns) {
    std::size_t* widest = nullptr;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      const bool can_wrap = columns_[i].align == Align::kLeft && layout[i] != kDropped;
      if (can_wrap && layout[i] > least && (widest == nullptr || layout[i] > *widest)) {
        widest = &layout[i];
      }
    }
    if (widest == nullptr) return;
    --*widest;
  }
}

Table::Layout Table::layout_within(std::size_t columns) const {
  Layout layout = natural_layout(true);
  if (columns == 0 || line_width(layout) <= columns) return layout;
  layout = natural_layout(false);
  for (;;) {
    Layout wrapped = layout;
    narrow(wrapped, columns, kWrapped);
    if (line_width(wrapped) <= columns) return wrapped;
    std::size_t first = layout.size();
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (layout[i] == kDropped || columns_[i].drop == 0) continue;
      if (first == layout.size() || columns_[i].drop < columns_[first].drop) first = i;
    }
    if (first == layout.size()) break;
    layout[first] = kDropped;
  }
  narrow(layout, columns, kNarrowest);
  return layout;
}

// A row, in as many lines as its longest wrapped text takes.
std::string Table::lines(const Row& row, const Layout& layout, std::size_t columns) const {
  std::vector<std::vector<std::string>> wrapped(row.size());
  std::size_t height = 1;
  std::size_t before = indent_.size();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (layout[i] == kDropped) continue;
    const bool spans = i + 1 == row.size() && row.size() < columns_.size();
    std::size_t width = layout[i];
    if (spans) width = columns > before + kNarrowest ? columns - before : kDropped;
    wrapped[i] = wrap_words(row[i], std::max<std::size_t>(width, 1));
    height = std::max(height, wrapped[i].size());
    before += layout[i] + gap_.size();
  }
  std::string out;
  for (std::size_t k = 0; k < height; ++k) {
    std::string line = indent_;
    std::size_t shown = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (layout[i] == kDropped) continue;
      if (shown++ > 0) line += gap_;
      const std::string text = k < wrapped[i].size() ? wrapped[i][k] : "";
      const std::size_t length = display_width(text);
      const bool spans = i + 1 == row.size() && row.size() < columns_.size();
      const std::string padding(spans || length >= layout[i] ? 0 : layout[i] - length, ' ');
      line += columns_[i].align == Align::kLeft ? text + padding : padding + text;
    }
    out += without_spaces_at_end(line) + "\n";
  }
  return out;
}

}  // namespace kvbench
