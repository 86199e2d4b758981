#include "json/file_kind.hpp"

#include <array>
#include <utility>

#include "core/error.hpp"

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

void refuse_other_kind(const json& document, const std::string& kind, const std::string& path,
                       const std::string& wanted) {
  const std::optional<std::string> found = kind_of_document(document);
  if (found && *found != kind) throw InputError(path + ": is " + *found + "; " + wanted);
}

}  // namespace kvbench
