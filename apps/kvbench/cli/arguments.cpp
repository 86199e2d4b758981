#include "cli/arguments.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "cli/options_table.hpp"
#include "system/error.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

// The command of that name; null if there is none.
CLI::App* command_named(CLI::App& app, const std::string& name) {
  for (CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (each->get_name() == name) return each;
  }
  return nullptr;
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* each : commands) names.push_back(each->get_name());
  return names;
}

// "1 to 4096", of which newer releases of CLI11 make "[1 - 4096]".
std::string range_text(const std::string& range) {
  const std::size_t dash = range.find(" - ");
  if (range.size() < 2 || range.front() != '[' || range.back() != ']' ||
      dash == std::string::npos) {
    return range;
  }
  return range.substr(1, dash - 1) + " to " + range.substr(dash + 3, range.size() - dash - 4);
}

// "kvbench" or "kvbench run".
std::string full_name(const CLI::App& command) {
  return command.get_parent() == nullptr ? "kvbench" : "kvbench " + command.get_name();
}

bool has_ending(const std::string& word, const std::string& ending) {
  return word.size() > ending.size() &&
         word.compare(word.size() - ending.size(), ending.size(), ending) == 0;
}

// A hyphen, or one of the dashes that text editors put in its place; its length in bytes.
std::size_t dash_at(const std::string& word, std::size_t at) {
  if (word[at] == '-') return 1;
  const std::string three = word.substr(at, 3);
  const bool is_dash = three == "\u2212" || (three >= "\u2010" && three <= "\u2015");
  return is_dash ? 3 : 0;
}

std::string without_dashes(const std::string& word) {
  std::size_t at = 0;
  while (at < word.size() && dash_at(word, at) > 0) at += dash_at(word, at);
  return word.substr(at);
}

// Begins like an option, but not by hyphens alone.
bool has_other_dash(const std::string& word) {
  const std::string rest = without_dashes(word);
  return word.size() - rest.size() > 2;
}

class ArgumentReader {
 public:
  explicit ArgumentReader(CLI::App& command) : command_(command), name_(full_name(command)) {
    for (OptionRow& row : options_of(command)) {
      (row.positional ? positionals_ : options_).push_back(std::move(row));
    }
  }

  // Errors of the words behind the command's name.
  ErrorList errors(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      given_.insert(word.substr(0, word.find('=')));
      if (const OptionRow* row = short_option_of(word)) given_.insert(row->name);
    }
    for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
      const std::string& word = words[i];
      if (word.rfind("--", 0) == 0) {
        const OptionRow* row = option_of(word);
        const std::size_t equals = word.find('=');
        const bool separate = equals == std::string::npos || equals + 1 == word.size();
        if (row == nullptr) {  // the next word may be its value
          if (separate && i + 1 < words.size() && words[i + 1][0] != '-') ++i;
        } else if (row->takes_value && !separate) {
          require_value(*row, word.substr(equals + 1));
        } else if (row->takes_value && ++i < words.size()) {
          require_value(*row, words[i]);
        }
        while (row != nullptr && row->takes_several && i + 1 < words.size() &&
               !words[i + 1].starts_with('-') && !has_ending(words[i + 1], ".json")) {
          require_value(*row, words[++i]);
        }
      } else if (has_other_dash(word)) {
        static_cast<void>(option_of(word));
        if (i + 1 < words.size() && words[i + 1][0] != '-') ++i;
      } else if (word.size() > 1 && word[0] == '-') {
        i += read_short(word, i + 1 < words.size() ? &words[i + 1] : nullptr);
      } else {
        read_positional(word);
      }
    }
    check_required();
    return std::move(errors_);
  }

 private:
  const OptionRow* option_of(const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> known;
    for (const OptionRow& row : options_) {
      if (row.name == name) return &row;
      known.push_back(row.name);
    }
    const std::string letters = without_dashes(name);
    const bool is_long = name.starts_with("--") || letters.size() > 1;
    const auto near = is_long ? nearest_word("--" + letters, known) : std::nullopt;
    if (near) given_.insert(*near);
    errors_.add(fmt::format("{}: unknown option {}{}; see `{} --help`", name_, name,
                            did_you_mean(near), name_));
    return nullptr;
  }

  const OptionRow* short_option_of(const std::string& word) const {
    if (word.size() < 2 || word[1] == '-') return nullptr;
    for (const OptionRow& row : options_) {
      if (row.short_name == word.substr(0, 2)) return &row;
    }
    return nullptr;
  }

  // "-c FILE" or "-cFILE"; returns how many further words belong to it.
  std::size_t read_short(const std::string& word, const std::string* next) {
    const OptionRow* row = short_option_of(word);
    if (row == nullptr) {
      static_cast<void>(option_of(word));
      return next != nullptr && word.size() > 2 && word.find('=') == std::string::npos &&
                     !next->starts_with('-')
                 ? 1
                 : 0;
    }
    if (!row->takes_value) return 0;
    if (word.size() > 2) {
      require_value(*row, word.substr(2));
      return 0;
    }
    if (next == nullptr) return 0;  // left to CLI11
    require_value(*row, *next);
    return 1;
  }

  void read_positional(const std::string& word) {
    if (next_ == positionals_.size()) {
      errors_.add(fmt::format("{}: unexpected argument {}{}; see `{} --help`", name_, word,
                              likely_option(word), name_));
      return;
    }
    const OptionRow& row = positionals_[next_];
    given_.insert(row.name);
    if (!row.repeats) ++next_;
    require_value(row, word);
  }

  void require_value(const OptionRow& row, const std::string& word) {
    if (word.empty()) {
      add_error(row.name + ": is empty; give it a value");
    } else if (row.choices.empty()) {
      require_readable(row, word);
    } else {
      require_choice(row, word);
    }
  }

  // Applies the option's own check of a value; CLI11 alone would stop at the first error.
  void require_readable(const OptionRow& row, const std::string& word) {
    CLI::Option& option = *command_.get_option(row.name);
    option.add_result(word);
    try {
      option.run_callback();
    } catch (const CLI::ConversionError& error) {
      const std::map<std::string, std::string> kinds = {
          {"INT", "an integer"}, {"UINT", "an integer >= 0"}, {"FLOAT", "a number"}};
      const std::string type = option.get_type_name();
      const auto kind = kinds.find(type.substr(0, type.find(':')));
      add_error(kind == kinds.end()
                    ? error.what()
                    : fmt::format("{}: must be {}, got {}", row.name, kind->second, word));
    } catch (const CLI::ValidationError& error) {
      const std::string what = error.what();
      constexpr std::string_view kRange = " not in range ";
      const std::size_t at = what.find(kRange);
      add_error(at == std::string::npos
                    ? what
                    : fmt::format("{}: must be from {}, got {}", row.name,
                                  range_text(what.substr(at + kRange.size())), word));
    } catch (const CLI::ParseError& error) {
      add_error(error.what());
    }
    option.clear();
  }

  void check_required() {
    for (const auto* rows : {&positionals_, &options_}) {
      for (const OptionRow& row : *rows) {
        const bool is_replaced =
            std::any_of(row.instead.begin(), row.instead.end(),
                        [&](const std::string& name) { return given_.count(name) > 0; });
        if (row.required && !is_replaced && given_.count(row.name) == 0) {
          add_error(row.name + ": is required");
        }
      }
    }
  }

  void add_error(const std::string& what) {
    errors_.add(fmt::format("{}: {}; see `{} --help`", name_, what, name_));
  }

  void require_choice(const OptionRow& row, const std::string& word) {
    const std::vector<std::string>& choices = row.choices;
    if (std::count(choices.begin(), choices.end(), word) != 0) return;
    // Only by its letters is a gpu nearer to cpu.
    const std::string near =
        did_you_mean(word == "gpu" && row.name == "--device" ? "cuda" : word, choices);
    errors_.add(near.empty()
                    ? fmt::format("{}: {}: must be one of {}, got {}", name_, row.name,
                                  fmt::join(choices, ", "), word)
                    : fmt::format("{}: {}: unknown value {}{}", name_, row.name, word, near));
  }

  // Most commands name their first file by an option, which is easily forgotten.
  std::string likely_option(const std::string& word) {
    const bool is_dump = has_ending(word, ".h5");
    if (!is_dump && !has_ending(word, ".json")) return "";
    for (const OptionRow& row : options_) {
      const bool first_file =
          is_dump ? row.name == "--dump" : row.name == "--config" || row.name == "--results";
      if (first_file && given_.insert(row.name).second) {
        return fmt::format("; did you mean {} {}?", row.name, word);
      }
    }
    return "";
  }

  CLI::App& command_;
  std::string name_;
  std::vector<OptionRow> options_;
  std::vector<OptionRow> positionals_;
  std::size_t next_ = 0;
  std::set<std::string> given_;  // names of options and positionals among them
  ErrorList errors_;
};

}  // namespace

void check_arguments(CLI::App& app, const std::vector<std::string>& words) {
  const std::vector<std::string> commands = names_of(commands_of(app));
  if (words.size() < 2) {
    throw InputError(fmt::format("missing command; expected one of {}; see `kvbench --help`",
                                 fmt::join(commands, ", ")));
  }
  CLI::App* command = words[1][0] == '-' ? &app : command_named(app, words[1]);
  if (command == nullptr) {
    const std::string near = did_you_mean(words[1], commands);
    throw InputError(fmt::format(
        "unknown command {}{}", words[1],
        near.empty() ? fmt::format("; expected one of {}", fmt::join(commands, ", ")) : near));
  }
  if (words[1] == "--version") return;
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") return;
  }
  const auto first = words.begin() + (command == &app ? 1 : 2);
  ArgumentReader(*command).errors({first, words.end()}).throw_if_any();
}

std::string parse_error_text(CLI::App& app, const std::vector<std::string>& words,
                             const CLI::ParseError& error) {
  const CLI::App* command = words.size() < 2 ? nullptr : command_named(app, words[1]);
  const std::string name = full_name(command == nullptr ? app : *command);
  return fmt::format("{}: {}; see `{} --help`", name, error.what(), name);
}

}  // namespace kvbench
