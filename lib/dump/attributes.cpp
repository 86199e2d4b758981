#include "dump/attributes.hpp"

#include <limits>

namespace kvbench {

void check_format(ErrorList& errors, Attributes& attributes, const std::string& format) {
  const auto found = attributes.text("format");
  if (found && *found != format) {
    add(errors, "/", "attribute format is '{}'; expected '{}'", *found, format);
  }
  errors.throw_if_any();
  const auto version = attributes.integer("format_version", 1, std::numeric_limits<int>::max());
  if (!version || *version == 1) return;
  add(errors, "/", "attribute format_version is {}; this program reads version 1", *version);
  errors.throw_if_any();
}

}  // namespace kvbench
