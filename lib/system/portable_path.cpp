#include "system/portable_path.hpp"

#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

namespace kvbench {
namespace {

namespace fs = std::filesystem;

// Characters that end a word of a command line, a list or a sentence.
constexpr std::string_view kBetweenWords = " \t\n'\"=,:;()[]{}";

}  // namespace

std::string portable_path(const std::string& path, const std::string& folder) {
  std::error_code error;
  const fs::path here =
      folder.empty() ? fs::current_path(error) : fs::absolute(folder, error).lexically_normal();
  const fs::path there = fs::path(path).lexically_normal();
  if (error || !there.is_absolute()) return path;
  const auto first_name = [](const fs::path& from) { return *std::next(from.begin()); };
  const bool share_root_alone = here == here.root_path() || there == there.root_path() ||
                                first_name(here) != first_name(there);
  return share_root_alone ? there.string() : there.lexically_relative(here).string();
}

std::string without_folders(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find_first_of(kBetweenWords, at);
    if (end == std::string::npos) end = text.size();
    std::string_view word = std::string_view(text).substr(at, end - at);
    const bool leads_away = word.starts_with("/") || word.starts_with("../");
    if (leads_away) {
      while (word.size() > 1 && word.ends_with("/")) word.remove_suffix(1);
      word.remove_prefix(word.rfind('/') + 1);
    }
    out += word;
    if (end < text.size()) out += text[end];
    at = end + 1;
  }
  return out;
}

}  // namespace kvbench
