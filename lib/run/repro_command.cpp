#include "run/repro_command.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <vector>

#include "algorithms/registry.hpp"
#include "json/document.hpp"
#include "system/portable_path.hpp"

namespace kvbench {
namespace {

// How a word is written on a POSIX shell's command line, in UTF-8 whatever its bytes are: others
// are made by printf.
std::string shell_word(const std::string& word) {
  if (!is_utf8(word)) {
    std::string escaped;
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      const bool as_it_is = std::isalnum(byte) != 0 || c == '/' || c == '.' || c == '-';
      escaped += as_it_is ? std::string(1, c) : fmt::format("\\0{:03o}", byte);
    }
    return "\"$(printf %b '" + escaped + "')\"";
  }
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A string of Python.
std::string quoted(const std::string& text) { return ascii_line(nlohmann::json(text)); }

// Whether the program knows the method, or both of a pair.
bool is_known(const AlgorithmDescription& algorithm) {
  if (algorithm.reader) return is_known(*algorithm.first) && is_known(*algorithm.reader);
  return find_algorithm(algorithm.id) != nullptr;
}

// The call in Python for cells of a method that the program does not know.
std::string python_repro_of(const SweepSource& source, const std::string& config,
                            const PlannedCell& cell, const std::vector<std::string>& ids,
                            const std::string& out) {
  const std::string only = ids.size() == 1 ? quoted(ids.front()) : exact_line(nlohmann::json(ids));
  std::string call = fmt::format("kb.run({}, out=\"{}\", only={}, methods=[{}]", quoted(config),
                                 out, only, cell.algorithm->title);
  if (source.has_file() && !source.sets.empty()) {
    call += ", sets=" + exact_line(nlohmann::json(source.sets));
  }
  return call + ")";
}

// `ids`: of cells that differ from `cell` at most in the KV head. `id`: what the folder is named
// by.
std::string repro(const SweepSource& source, const std::string& folder, const PlannedCell& cell,
                  const std::vector<std::string>& ids, const std::string& id) {
  constexpr std::size_t kDigits = 8;
  const bool has_file = source.has_file();
  const std::filesystem::path given = has_file ? source.file : folder + "/sweep.json";
  const std::string config = portable_path(std::filesystem::absolute(given).string());
  const std::string out = "repro/" + id.substr(0, kDigits);
  if (!is_known(*cell.algorithm)) {
    return python_repro_of(source, config, cell, ids, out);
  }
  std::string line = "kvbench run --config " + shell_word(config);
  for (const std::string& each : ids) line += " --only " + each;
  line += " --out " + out;
  if (!has_file) return line;  // sweep.json has what --set changed
  for (const std::string& set : source.sets) line += " --set " + shell_word(set);
  return line;
}

}  // namespace

std::string repro_of(const SweepSource& source, const std::string& folder,
                     const PlannedCell& cell) {
  return repro(source, folder, cell, {cell.id.text()}, cell.id.text());
}

std::string repro_of(const SweepSource& source, const std::string& folder, const Plan& plan,
                     const PlannedLayerRecord& layer) {
  std::vector<std::string> ids;
  for (const std::size_t c : layer.cells) ids.push_back(plan.cells[c].id);
  return repro(source, folder, plan.cells[layer.cells.front()], ids, layer.id);
}

}  // namespace kvbench
