#include "output/check_reports.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "output/cell_text.hpp"
#include "output/check_table.hpp"
#include "output/log.hpp"
#include "output/terminal.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kMaxInMarkdown = 20;  // violations of one bound in Markdown

// Text and attributes of XML 1.0, which has no control characters; of them printable() leaves
// newlines alone.
std::string xml(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// One line of a table of Markdown: nothing in it is read as markup.
std::string markdown(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (std::string_view("\\`*_{}[]<>|#~&").find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string violation_text(const Violation& violation) {
  std::string text = violation.reason;
  if (violation.value) text += fmt::format(", value {:.6g}", *violation.value);
  if (violation.allowed) text += fmt::format(", allowed {:.6g}", *violation.allowed);
  if (!violation.cell.is_null()) text += ": " + cell_text(violation.cell);
  return text;
}

std::string lines(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations) text += violation_text(violation) + "\n";
  return text;
}

struct Case {
  std::string name;
  std::string kind;
  std::string tested;
  std::string evidence;
  const std::vector<Violation>* violations;
};

std::vector<Case> cases_of(const CheckReport& report) {
  std::vector<Case> cases;
  if (!report.violations.empty()) {
    cases.push_back({"(results)", "", "", "", &report.violations});
  }
  for (const BoundOutcome& bound : report.bounds) {
    cases.push_back({bound.name, bound.kind, std::to_string(bound.tested),
                     evidence_text(bound.evidence), &bound.violations});
  }
  return cases;
}

std::size_t count_failures(const std::vector<Case>& cases) {
  return std::count_if(cases.begin(), cases.end(),
                       [](const Case& one) { return !one.violations->empty(); });
}

}  // namespace

std::string check_junit(const CheckReport& report, const std::string& suite,
                        const std::string& classname) {
  const std::vector<Case> cases = cases_of(report);
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\"", cases.size(), count_failures(cases));
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format("<testsuites {}>\n  <testsuite name=\"{}\" {}>\n", counts, xml(suite), counts);
  for (const Case& one : cases) {
    out += fmt::format("    <testcase classname=\"{}\" name=\"{}\"", xml(classname), xml(one.name));
    if (one.violations->empty()) {
      out += "/>\n";
      continue;
    }
    out += fmt::format(">\n      <failure message=\"{}\">{}</failure>\n    </testcase>\n",
                       xml(violation_text(one.violations->front())), xml(lines(*one.violations)));
  }
  return out + "  </testsuite>\n</testsuites>\n";
}

std::string check_markdown(const CheckReport& report) {
  const std::vector<Case> cases = cases_of(report);
  const auto held = std::count_if(report.bounds.begin(), report.bounds.end(),
                                  [](const BoundOutcome& bound) { return bound.held(); });
  std::string out =
      fmt::format("### kvbench check: {} of {} bounds held\n\n", held, report.bounds.size());
  out += "| verdict | bound | kind | tested | evidence |\n|---|---|---|---:|---|\n";
  for (const Case& one : cases) {
    out += fmt::format("| {} | {} | {} | {} | {} |\n",
                       one.violations->empty() ? "held" : "**VIOLATED**", markdown(one.name),
                       one.kind, one.tested, markdown(one.evidence));
  }
  for (const Case& one : cases) {
    if (one.violations->empty()) continue;
    out += fmt::format("\n**{}**\n\n", markdown(one.name));
    const std::size_t shown = std::min(one.violations->size(), kMaxInMarkdown);
    for (std::size_t i = 0; i < shown; ++i) {
      out += "* " + markdown(violation_text((*one.violations)[i])) + "\n";
    }
    if (shown < one.violations->size()) {
      out += fmt::format("* and {} more\n", one.violations->size() - shown);
    }
  }
  return out;
}

void print_check(const CheckReport& report, const std::string& format, const std::string& bounds,
                 const std::string& results) {
  if (format == "json") {
    Json document = {{"results", results}, {"bounds_file", bounds}};
    document.update(report_json(report));
    print_json(document, 2);
  } else if (format == "junit") {
    print_block(check_junit(report, bounds, results));
  } else if (format == "markdown") {
    print_block(check_markdown(report));
  } else {
    print_block(check_table(report, terminal_columns(stdout)));
  }
}

}  // namespace kvbench
