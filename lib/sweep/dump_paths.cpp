#include "sweep/dump_paths.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "json/document.hpp"
#include "system/printable.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

// A folder is part of no pattern: only the text of the sweep file may contain wildcards.
std::string escaped(const std::string& folder) {
  std::string text;
  for (const char c : folder) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

bool is_pattern(const std::string& written) {
  return written.find_first_of("*?[") != std::string::npos;
}

std::vector<std::string> files_of_glob(const std::string& pattern, bool folders = false) {
  std::vector<std::string> files;
  glob_t matches{};
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0) {
    for (std::size_t i = 0; i < matches.gl_pathc; ++i) {
      std::error_code ignored;
      const bool is_folder = fs::is_directory(matches.gl_pathv[i], ignored);
      if (is_folder == folders) files.emplace_back(matches.gl_pathv[i]);
    }
  }
  globfree(&matches);
  std::sort(files.begin(), files.end());
  return files;
}

constexpr const char* kNotUtf8 =
    ", has a name that is not UTF-8, which results.json cannot write; rename it, or make a link to "
    "it: ln -s OLD NEW";

// The file itself, whatever links and names lead to it.
std::string identity(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  return error ? path : canonical.string();
}

}  // namespace

std::vector<std::string> files_named(const std::string& written, const std::string& folder,
                                     const std::string& place, ErrorList& errors) {
  std::error_code ignored;
  const bool absolute = fs::path(written).is_absolute();
  const fs::path literal = absolute ? fs::path(written) : fs::path(folder) / written;
  if (fs::exists(literal, ignored)) return {literal.string()};
  std::vector<std::string> files =
      files_of_glob(absolute ? written : escaped(folder) + "/" + written);
  if (files.empty()) {
    errors.add(place, (is_pattern(written) ? "no file matches " : "there is no file ") + written +
                          (absolute ? "; name one that exists"
                                    : "; relative paths start at the folder of the sweep file, " +
                                          folder));
  }
  return files;
}

std::vector<std::string> read_dump_paths(const nlohmann::json& written_as,
                                         const std::string& folder, const std::string& pointer,
                                         ErrorList& errors) {
  std::vector<std::string> paths;
  if (!is_utf8(folder)) {
    errors.add(pointer, "the sweep file's folder, " + one_line(folder) + kNotUtf8);
    return paths;
  }
  const nlohmann::json given =
      written_as.is_string() ? nlohmann::json::array({written_as}) : written_as;
  if (!given.is_array() || given.empty()) {
    errors.add(pointer, "must be a list of paths with at least one dump, got " + shown(given));
    return paths;
  }
  std::error_code ignored;
  std::map<std::string, std::string> seen;  // file -> where it was named
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string place = child(pointer, i);
    if (!given[i].is_string() || given[i].get_ref<const std::string&>().empty()) {
      errors.add(place, "must be the path of a dump, got " + shown(given[i]));
      continue;
    }
    const auto& written = given[i].get_ref<const std::string&>();
    if (written.find("\uFFFD") != std::string::npos && !fs::exists(written, ignored)) {
      errors.add(place, written + kNotUtf8);
      continue;
    }
    const std::vector<std::string> files = files_named(written, folder, place, errors);
    if (files.size() == 1 && fs::is_directory(files.front(), ignored)) {
      std::string message = written + " is a folder; name the dumps in it, for example ";
      errors.add(place, message.append(written).append("/*.h5"));
      continue;
    }
    for (const std::string& file : files) {
      const auto [first, fresh] = seen.emplace(identity(file), place);
      if (!fresh) {
        errors.add(place, file + " is already named by " + first->second + "; name it once");
        continue;
      }
      paths.push_back(fs::path(file).lexically_normal().string());
    }
  }
  return paths;
}

std::vector<std::string> dumps_of_option(const std::vector<std::string>& written) {
  std::vector<std::string> paths;
  ErrorList errors;
  for (const std::string& path : written) {
    std::error_code ignored;
    if (!is_pattern(path) || fs::exists(path, ignored)) {
      paths.push_back(path);
      continue;
    }
    const std::vector<std::string> files = files_of_glob(path);
    if (files.empty()) errors.add("--dump", "no file matches " + path);
    paths.insert(paths.end(), files.begin(), files.end());
  }
  errors.throw_if_any();
  return paths;
}

std::vector<std::string> folders_named(const std::vector<std::string>& written) {
  std::vector<std::string> paths;
  for (const std::string& path : written) {
    std::error_code ignored;
    std::vector<std::string> folders;
    if (is_pattern(path) && !fs::exists(path, ignored)) folders = files_of_glob(path, true);
    if (folders.empty()) folders = {path};
    paths.insert(paths.end(), folders.begin(), folders.end());
  }
  return paths;
}

}  // namespace kvbench
