#include "hdf5/attributes.hpp"

#include <limits>

namespace kvbench {

std::optional<int> check_format(ErrorList& errors, Attributes& attributes,
                                const std::string& format, int newest) {
  const auto found = attributes.text("format");
  if (found && *found != format) {
    add(errors, "/", "attribute format is '{}'; expected '{}'", *found, format);
  }
  errors.throw_if_any();
  const auto version = attributes.integer("format_version", 1, std::numeric_limits<int>::max());
  if (!version) return std::nullopt;
  if (*version <= newest) return static_cast<int>(*version);
  add(errors, "/", "attribute format_version is {}; this program reads version 1{}", *version,
      newest > 1 ? fmt::format(" to {}", newest) : "");
  errors.throw_if_any();
  return std::nullopt;
}

}  // namespace kvbench
