// Text in columns, for people: the one way in which the program lays out a table.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvbench {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kRight;
  std::size_t width = 0;  // at least; a column is as wide as its longest text
};

class Table {
 public:
  // `gap`: what stands between columns; `indent`: before each line.
  explicit Table(std::vector<Column> columns, std::string gap = "  ", std::string indent = "");

  // One text per column.
  void add(std::vector<std::string> row);
  // Fewer texts than columns: the last of them reaches over what is left of the line.
  void add_spanning(std::vector<std::string> row);

  // A line per row, each without spaces at its end, below the titles, if there are any.
  std::string text() const;

 private:
  std::string line(const std::vector<std::string>& row,
                   const std::vector<std::size_t>& width) const;

  std::vector<Column> columns_;
  std::string gap_;
  std::string indent_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kvbench
