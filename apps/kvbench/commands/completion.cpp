#include <fmt/core.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "cli/options_table.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"

namespace kvbench {

namespace {

constexpr const char* kCompletionFooter =
    R"(The completion is made from the tables that the command line is read with. `cmake --install` puts it
where bash looks.

Examples:
  source <(kvbench completion)
  kvbench completion > kvbench.bash)";

std::vector<std::string> names_of_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionRow& option : options_of(command)) {
    if (!option.positional) names.push_back(option.name);
  }
  return names;
}

// Words that follow an option, and other words. Without words the shell completes file names.
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

}  // namespace

Command add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print completion for bash");
  command->add_option("SHELL", "the only one is bash")
      ->type_name("TEXT")
      ->check(CLI::IsMember({"bash"}));
  command->footer(kCompletionFooter);
  return {command, [&app] {
            print_bash(app);
            return kExitDone;
          }};
}

}  // namespace kvbench
