#include "output/check_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "output/cell_text.hpp"
#include "output/failure_groups.hpp"
#include "output/table.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kMaxOfBound = 20;  // rows of one bound's violations or untested cells

std::string number_text(const Json& value) {
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return value.is_null() ? "-" : to_line(value);
}

std::string number_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : "-";
}

void add_cells(std::string& out, const std::string& bound, const char* kind,
               const std::vector<Json>& cells) {
  const std::vector<std::string> lines = cell_lines(cells);
  for (std::size_t i = 0; i < std::min(lines.size(), kMaxOfBound); ++i) {
    out += fmt::format("  {}: {}: {}\n", bound, kind, lines[i]);
  }
  if (lines.size() > kMaxOfBound) {
    out += fmt::format("  {}: and {} more, {}\n", bound, lines.size() - kMaxOfBound, kind);
  }
}

std::string untested_text(const CheckReport& report) {
  std::string out;
  for (const BoundOutcome& bound : report.bounds) {
    add_cells(out, bound.name, "vacuous", bound.vacuous);
    add_cells(out, bound.name, "skipped", bound.skipped);
    add_cells(out, bound.name, "undefined", bound.undefined);
  }
  return out.empty() ? "" : "\nnot tested, hence not confirmed:\n" + out;
}

using Row = std::vector<std::string>;  // bound, value, allowed, what, cell

void add_violations(std::vector<Row>& rows, const std::string& bound,
                    const std::vector<Violation>& violations) {
  std::vector<Row> found;
  FailureGroups causes;
  for (std::size_t i = 0; i < violations.size(); ++i) {
    const Violation& v = violations[i];
    if (v.value || v.allowed || v.cell.is_null()) {
      found.push_back(
          {bound, number_text(v.value), number_text(v.allowed), v.reason, cell_text(v.cell)});
    } else {  // only the cell distinguishes it from others of its cause
      causes.add(v.reason, i);
    }
  }
  for (const FailureGroup& cause : causes.all()) {
    const std::string cell = cell_text(violations[cause.first].cell);
    if (cause.count == 1) {
      found.push_back({bound, "-", "-", cause.reason, cell});
    } else {
      found.push_back({bound, "-", "-", fmt::format("{} cells: {}", cause.count, cause.reason),
                       "the first: " + cell});
    }
  }
  const std::size_t shown = std::min(found.size(), kMaxOfBound);
  rows.insert(rows.end(), found.begin(), found.begin() + shown);
  if (found.size() > shown) {
    rows.push_back({bound, "", "", fmt::format("and {} more", found.size() - shown), ""});
  }
}

std::string violations_text(const CheckReport& report, std::size_t columns) {
  std::vector<Row> rows;
  add_violations(rows, "(results)", report.violations);
  for (const BoundOutcome& bound : report.bounds) {
    add_violations(rows, bound.name, bound.violations);
  }
  if (rows.empty()) return "";
  Table table({{"bound", Align::kLeft},
               {"value"},
               {"allowed"},
               {"what", Align::kLeft},
               {"cell", Align::kLeft}},
              "  ", "  ");
  for (Row& row : rows) table.add(std::move(row));
  return "\nviolations:\n" + table.text(columns);
}

}  // namespace

std::string evidence_text(const Json& evidence) {
  std::string text;
  for (const auto& [name, value] : evidence.items()) {
    if (value.is_structured()) continue;
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", words, number_text(value));
  }
  return text;
}

std::string check_table(const CheckReport& report, std::size_t columns) {
  Table table({{"verdict", Align::kLeft, 8},
               {"bound", Align::kLeft},
               {"kind", Align::kLeft, 12, 1},
               {"tested", Align::kRight, 7},
               {"evidence", Align::kLeft}});
  std::size_t held = 0;
  for (const BoundOutcome& bound : report.bounds) {
    held += bound.held() ? 1 : 0;
    table.add({bound.held() ? "held" : "VIOLATED", bound.name, bound.kind,
               bound.tested == bound.matched ? std::to_string(bound.tested)
                                             : fmt::format("{} of {}", bound.tested, bound.matched),
               evidence_text(bound.evidence)});
  }
  std::string out = table.text(columns);
  out += untested_text(report) + violations_text(report, columns);
  out += fmt::format("\n{} of {} bounds held\n", held, report.bounds.size());
  return out;
}

}  // namespace kvbench
