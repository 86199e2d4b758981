#include "cli/options_table.hpp"

#include <sstream>

namespace kvbench {

namespace {

// "TEXT:{cpu,cuda,auto}" holds what CLI::IsMember allows.
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t open = type.find('{');
  const std::size_t close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::istringstream words(type.substr(open + 1, close - open - 1));
  for (std::string word; std::getline(words, word, ',');) choices.push_back(word);
  return choices;
}

std::string name_of(const CLI::Option& option) {
  return option.get_positional() ? option.get_single_name() : "--" + option.get_lnames().front();
}

OptionRow row_of(const CLI::Option& option) {
  OptionRow row;
  row.positional = option.get_positional();
  row.name = name_of(option);
  if (!row.positional && !option.get_snames().empty()) {
    row.short_name = "-" + option.get_snames().front();
  }
  row.takes_value = option.get_items_expected_max() > 0;
  row.required = option.get_required();
  for (const CLI::Option* other : option.get_excludes()) {
    row.instead.push_back(name_of(*other));
  }
  row.repeats = option.get_items_expected_max() > 1;
  row.takes_several = !row.positional && row.repeats && option.get_allow_extra_args();
  row.choices = choices_in(option.get_type_name());
  return row;
}

}  // namespace

std::vector<const CLI::App*> commands_of(const CLI::App& app) { return app.get_subcommands({}); }

std::vector<OptionRow> options_of(const CLI::App& command) {
  std::vector<OptionRow> rows;
  for (const CLI::Option* option : command.get_options()) {
    if (option != command.get_help_ptr()) rows.push_back(row_of(*option));
  }
  for (const CLI::App* group : command.get_subcommands({})) {
    if (!group->get_name().empty()) continue;
    for (const CLI::Option* option : group->get_options()) {
      if (option != group->get_help_ptr()) rows.push_back(row_of(*option));
    }
  }
  if (command.get_help_ptr() != nullptr) rows.push_back(row_of(*command.get_help_ptr()));
  return rows;
}

}  // namespace kvbench
