#include "output/table.hpp"

#include <algorithm>
#include <utility>

namespace kvbench {
namespace {

// Characters of UTF-8 text.
std::size_t length_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

Table::Table(std::vector<Column> columns, std::string gap, std::string indent)
    : columns_(std::move(columns)), gap_(std::move(gap)), indent_(std::move(indent)) {}

void Table::add(std::vector<std::string> row) {
  row.resize(columns_.size());
  rows_.push_back(std::move(row));
}

void Table::add_spanning(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

std::string Table::text() const {
  std::vector<std::string> titles;
  std::vector<std::size_t> width;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    width.push_back(std::max(column.width, length_of(column.title)));
  }
  for (const std::vector<std::string>& row : rows_) {
    const std::size_t own = row.size() < columns_.size() ? row.size() - 1 : row.size();
    for (std::size_t i = 0; i < own; ++i) width[i] = std::max(width[i], length_of(row[i]));
  }
  const bool has_titles =
      std::any_of(titles.begin(), titles.end(), [](const auto& title) { return !title.empty(); });
  std::string out = has_titles ? line(titles, width) : "";
  for (const std::vector<std::string>& row : rows_) out += line(row, width);
  return out;
}

std::string Table::line(const std::vector<std::string>& row,
                        const std::vector<std::size_t>& width) const {
  std::string out = indent_;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i > 0) out += gap_;
    const bool spans = i + 1 == row.size() && row.size() < columns_.size();
    const std::size_t length = length_of(row[i]);
    const std::string padding(spans || length >= width[i] ? 0 : width[i] - length, ' ');
    out += columns_[i].align == Align::kLeft ? row[i] + padding : padding + row[i];
  }
  return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace kvbench
