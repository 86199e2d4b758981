#include "cli/index_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr int kMost = 10000;  // layers or heads of a model

std::optional<int> small_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && value >= 0 && value <= kMost ? std::optional(value) : std::nullopt;
}

}  // namespace

std::vector<int> indices_of(const std::string& option, const std::string& word) {
  const std::size_t dash = std::min(word.find('-'), word.size());
  const auto first = small_number(std::string_view(word).substr(0, dash));
  const auto last =
      dash < word.size() ? small_number(std::string_view(word).substr(dash + 1)) : first;
  if (dash < word.size() && (!first || !last || *last < *first)) {
    throw InputError(
        fmt::format("{}: {} is not a range; write it as 0-7, the lower number first, up to 10000",
                    option, word));
  }
  std::vector<int> indices;
  for (int index = first.value_or(0); first && index <= *last; ++index) indices.push_back(index);
  return indices;
}

CLI::Option* add_indices(CLI::App& command, const std::string& option, std::vector<int>& out,
                         const std::string& description) {
  const CLI::callback_t read = [option, &out](const std::vector<std::string>& words) {
    out.clear();
    if (words == std::vector<std::string>{"all"}) return true;
    for (const std::string& word : words) {
      const std::vector<int> indices = indices_of(option, word);
      if (indices.empty()) {
        throw InputError(fmt::format(
            "{}: {} is no number up to 10000; give numbers and ranges, such as 0-7,15, or all",
            option, word));
      }
      out.insert(out.end(), indices.begin(), indices.end());
    }
    return true;
  };
  return command.add_option(option, read, description)
      ->type_name("NUMBERS")
      ->type_size(1)
      ->expected(1, kMost)
      ->delimiter(',')
      ->allow_extra_args(false);
}

}  // namespace kvbench
