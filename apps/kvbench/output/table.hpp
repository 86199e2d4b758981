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
  int drop = 0;           // where a table is too wide: 0 always stays, of the others 1 goes first
};

class Table {
 public:
  // `gap`: the text between columns; `indent`: before each line.
  explicit Table(std::vector<Column> columns, std::string gap = "  ", std::string indent = "");

  // One text per column.
  void add(std::vector<std::string> row);
  // Fewer texts than columns: the last of them reaches over what is left of the line.
  void add_spanning(std::vector<std::string> row);

  // A line per row, each without spaces at its end, below the titles, if there are any. Texts are
  // one line each, whatever they hold. `columns`: what a line may take, 0: anything. A table that
  // is wider has no wider columns than its texts; then texts on the left are wrapped within theirs,
  // and columns are dropped that may be; numbers are never cut, so that lines can be too long yet.
  std::string text(std::size_t columns = 0) const;

 private:
  using Row = std::vector<std::string>;
  using Layout = std::vector<std::size_t>;  // widths; kDropped: the column is left out

  Layout natural_layout(bool with_minimum) const;
  Layout layout_within(std::size_t columns) const;
  std::size_t line_width(const Layout& layout) const;
  void narrow(Layout& layout, std::size_t columns, std::size_t least) const;
  std::string lines(const Row& row, const Layout& layout, std::size_t columns) const;

  std::vector<Column> columns_;
  std::string gap_;
  std::string indent_;
  std::vector<Row> rows_;
};

}  // namespace kvbench
