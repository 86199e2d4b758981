#include <fmt/core.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/options_table.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"

namespace kvbench {

namespace {

constexpr const char* kCompletionFooter =
    R"(The completion is made from the tables that the command line is read with. `cmake --install` puts it
where shells look.

Examples:
  source <(kvbench completion bash)
  kvbench completion bash > kvbench.bash
  kvbench completion zsh > _kvbench
  kvbench completion fish > kvbench.fish)";

std::vector<std::string> names_of_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionRow& option : options_of(command)) {
    if (!option.positional) names.push_back(option.name);
  }
  return names;
}

// What follows an option, and what else may stand. Without words the shell completes file names.
void print_bash_cases(const CLI::App& command) {
  std::string positional;
  std::vector<std::string> free_values;
  for (const OptionRow& option : options_of(command)) {
    const std::string words = fmt::format("{}", fmt::join(option.choices, " "));
    if (option.positional) {
      if (positional.empty()) positional = words;
    } else if (!words.empty()) {
      fmt::print("      \"{} {}\") words=\"{}\" ;;\n", command.get_name(), option.name, words);
    } else if (option.takes_value) {
      free_values.push_back(fmt::format("\"{} {}\"", command.get_name(), option.name));
    }
  }
  if (!free_values.empty()) fmt::print("      {}) ;;\n", fmt::join(free_values, " | "));
  fmt::print("      \"{} \"*)\n        if [[ $current == -* ]]; then words=\"{}\"; ",
             command.get_name(), fmt::join(names_of_options(command), " "));
  fmt::print("else words=\"{}\"; fi ;;\n", positional);
}

void print_bash(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* command : commands_of(app)) words.push_back(command->get_name());
  for (const std::string& name : names_of_options(app)) words.push_back(name);
  fmt::print(R"(# bash completion for kvbench, printed by `kvbench completion bash`
_kvbench() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words=
  if ((COMP_CWORD == 1)); then
    words="{}"
  else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD - 1]}}" in
)",
             fmt::join(words, " "));
  for (const CLI::App* command : commands_of(app)) print_bash_cases(*command);
  fmt::print(R"(    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _kvbench kvbench
)");
}

// Inside single quotes, where _arguments and _describe read brackets and colons as their own.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

// Whether a value without fixed words may name a file or folder; a number cannot.
bool may_be_file(const OptionRow& option) {
  return option.value == "TEXT" || option.value == "FILE" || option.value == "DIR";
}

// What completes a value: fixed words, file names, or nothing, such as for a number.
std::string zsh_values(const OptionRow& option) {
  if (!option.choices.empty()) return fmt::format("({})", fmt::join(option.choices, " "));
  return may_be_file(option) ? "_files" : " ";
}

std::string zsh_argument(const OptionRow& option) {
  if (option.positional) {
    return fmt::format("'{}{}:{}'", option.repeats ? "*:" : ":", zsh_text(option.name),
                       zsh_values(option));
  }
  const std::string value =
      option.takes_value ? fmt::format(":{}:{}", zsh_text(option.value), zsh_values(option)) : "";
  const std::string rest = fmt::format("[{}]{}", zsh_text(option.description), value);
  if (option.short_name.empty()) {
    return fmt::format("'{}{}{}'", option.repeats ? "*" : "", option.name, rest);
  }
  // Either name, and not the other one after it.
  const std::string before =
      option.repeats ? "*" : fmt::format("({} {})", option.short_name, option.name);
  return fmt::format("'{}'{{{},{}}}'{}'", before, option.short_name, option.name, rest);
}

void print_zsh(const CLI::App& app) {
  fmt::print(R"(#compdef kvbench
# zsh completion for kvbench, printed by `kvbench completion zsh`
_kvbench() {{
  if ((CURRENT == 2)); then
    local -a commands=(
)");
  for (const CLI::App* command : commands_of(app)) {
    fmt::print("      '{}:{}'\n", command->get_name(), zsh_text(command->get_description()));
  }
  for (const OptionRow& option : options_of(app)) {
    fmt::print("      '{}:{}'\n", option.name, zsh_text(option.description));
  }
  fmt::print(R"(    )
    _describe command commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
)");
  for (const CLI::App* command : commands_of(app)) {
    fmt::print("    {})\n      _arguments", command->get_name());
    for (const OptionRow& option : options_of(*command)) {
      fmt::print(" \\\n        {}", zsh_argument(option));
    }
    fmt::print(" ;;\n");
  }
  fmt::print(R"(  esac
}}
if [[ $funcstack[1] == _kvbench ]]; then _kvbench "$@"; else compdef _kvbench kvbench; fi
)");
}

// In fish's single quotes, where a backslash escapes itself and the quote alone.
std::string fish_text(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

void print_fish_option(const std::string& condition, const OptionRow& option) {
  fmt::print("complete -c kvbench -n {}", fish_text(condition));
  if (option.positional) {  // without fixed words fish offers files by itself
    fmt::print(" -f -a {}\n", fish_text(fmt::format("{}", fmt::join(option.choices, " "))));
    return;
  }
  fmt::print(" -l {}", option.name.substr(2));
  if (!option.short_name.empty()) fmt::print(" -s {}", option.short_name.substr(1));
  if (!option.choices.empty()) {
    fmt::print(" -x -a {}", fish_text(fmt::format("{}", fmt::join(option.choices, " "))));
  } else if (option.takes_value) {
    fmt::print("{}", may_be_file(option) ? " -r -F" : " -x");
  }
  fmt::print(" -d {}\n", fish_text(option.description));
}

void print_fish(const CLI::App& app) {
  // The command is the second word alone: a later one may be a value that is called like a command.
  fmt::print(R"(# fish completion for kvbench, printed by `kvbench completion fish`
function __kvbench_command
    set -l words (commandline -opc)
    if set -q argv[1]
        test (count $words) -ge 2; and test "$words[2]" = "$argv[1]"
    else
        test (count $words) -eq 1
    end
end
)");
  for (const CLI::App* command : commands_of(app)) {
    fmt::print("complete -c kvbench -n __kvbench_command -f -a {} -d {}\n", command->get_name(),
               fish_text(command->get_description()));
  }
  for (const OptionRow& option : options_of(app)) print_fish_option("__kvbench_command", option);
  for (const CLI::App* command : commands_of(app)) {
    const std::string condition = "__kvbench_command " + command->get_name();
    for (const OptionRow& option : options_of(*command)) {
      if (!option.positional || !option.choices.empty()) print_fish_option(condition, option);
    }
  }
}

}  // namespace

Command add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print completion for bash, zsh or fish");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(kCompletionFooter);
  return {command, [&app, shell] {
            if (*shell == "bash") {
              print_bash(app);
            } else if (*shell == "zsh") {
              print_zsh(app);
            } else {
              print_fish(app);
            }
            return kExitDone;
          }};
}

}  // namespace kvbench
