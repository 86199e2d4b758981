#include <fmt/core.h>
#include <fmt/ranges.h>

#include <sstream>
#include <string>

#include "cli/options_table.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"
#include "results/provenance.hpp"

namespace kvbench {
namespace {

constexpr const char* kManualFooter =
    R"(A page for man(1), made of what --help prints. `cmake --install` puts it where man looks.

Examples:
  kvbench manual > kvbench.1)";

// One line of text as roff takes it: no line of text starts a request.
std::string roff(const std::string& line) {
  std::string out;
  if (!line.empty() && (line[0] == '.' || line[0] == '\'')) out = "\\&";
  for (const char c : line) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else {
      out += c;
    }
  }
  return out;
}

// Text that is laid out already.
void print_as_it_is(const std::string& text) {
  fmt::print(".nf\n");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) fmt::print("{}\n", roff(line));
  fmt::print(".fi\n");
}

void print_option(const OptionRow& option) {
  const std::string names =
      option.short_name.empty() ? option.name : option.short_name + ", " + option.name;
  fmt::print(".TP\n\\fB{}\\fR", roff(names));
  if (!option.choices.empty()) {
    fmt::print(" {}", roff(fmt::format("{}", fmt::join(option.choices, "|"))));
  } else if (option.takes_value && !option.positional) {
    fmt::print(" \\fI{}\\fR", roff(option.value));
  }
  if (option.repeats) fmt::print(" ...");
  fmt::print("\n{}", roff(option.description));
  if (option.required) fmt::print(" (required)");
  if (!option.fallback.empty()) fmt::print(" (default {})", roff(option.fallback));
  fmt::print("\n");
}

void print_manual(const CLI::App& app) {
  fmt::print(".TH KVBENCH 1 \"\" \"kvbench {}\"\n", program_version());
  fmt::print(".SH NAME\nkvbench \\- {}\n", roff(app.get_description()));
  fmt::print(".SH SYNOPSIS\n.B kvbench\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n");
  fmt::print(".SH DESCRIPTION\n");
  print_as_it_is(app.get_footer());
  fmt::print(".SH COMMANDS\n");
  for (const CLI::App* command : commands_of(app)) {
    fmt::print(".SS {}\n{}.\n", command->get_name(), roff(command->get_description()));
    for (const OptionRow& option : options_of(*command)) print_option(option);
    fmt::print(".PP\n");
    print_as_it_is(command->get_footer());
  }
}

}  // namespace

Command add_manual(CLI::App& app) {
  CLI::App* command = app.add_subcommand("manual", "Print the manual page");
  command->footer(kManualFooter);
  return {command, [&app] {
            print_manual(app);
            return kExitDone;
          }};
}

}  // namespace kvbench
