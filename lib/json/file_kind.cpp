#include "json/file_kind.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "system/error.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

constexpr std::string_view kHdf5 = "\x89HDF\r\n\x1a\n";
constexpr std::array<std::pair<const char*, const char*>, 3> kByKind = {
    {{"kvbench.results", "a results file"},
     {"kvbench.journal", "a journal"},
     {"kvbench.inspection", "an inspection"}}};
constexpr std::array<std::pair<const char*, const char*>, 2> kByMember = {
    {{"algorithms", "a sweep file"}, {"bounds", "a bounds file"}}};

}  // namespace

void refuse_hdf5(std::string_view text, const std::string& path, const std::string& wanted) {
  if (text.substr(0, kHdf5.size()) != kHdf5) return;
  throw InputError(path + ": is an HDF5 file, as dumps are; " + wanted);
}

std::optional<std::string> kind_of_document(const json& document) {
  if (!document.is_object()) return std::nullopt;
  for (const auto& [kind, name] : kByKind) {
    if (document.value("kind", json()) == kind) return name;
  }
  for (const auto& [member, name] : kByMember) {
    if (document.contains(member)) return name;
  }
  return std::nullopt;
}

void refuse_to_replace(const std::string& path, WrittenKind kind) {
  constexpr std::size_t kBeginning = 4096;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status)) return;
  const bool hdf5 = kind == WrittenKind::kHdf5;
  const std::string what = hdf5 ? "an HDF5 file" : "a results file";
  std::string text(kBeginning, '\0');
  if (std::filesystem::is_regular_file(status)) {
    std::ifstream in(path, std::ios::binary);
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(in.gcount());
    if (text.empty()) return;
    if (hdf5 ? text.compare(0, kHdf5.size(), kHdf5) == 0
             : text[0] == '{' && text.find("\"kvbench.results\"") != std::string::npos) {
      return;
    }
  }
  throw InputError(path + ": is there and is not " + what +
                   ", which would replace it; give another name, or remove it first");
}

void refuse_other_kind(const json& document, const std::string& kind, const std::string& path,
                       const std::string& wanted) {
  const std::optional<std::string> found = kind_of_document(document);
  if (found && *found != kind) throw InputError(path + ": is " + *found + "; " + wanted);
}

}  // namespace kvbench
