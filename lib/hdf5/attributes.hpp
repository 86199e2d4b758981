// Attributes of an object of a file, and what is wrong with them.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "hdf5/hdf5.hpp"
#include "hdf5/structure_errors.hpp"
#include "system/error.hpp"

namespace kvbench {

// Reads required and optional attributes of one object, and collects what is wrong with them.
class Attributes {
 public:
  Attributes(ErrorList& errors, hid_t object, std::string location)
      : errors_(errors), object_(object), location_(std::move(location)) {}

  std::optional<std::int64_t> integer(const std::string& name, std::int64_t least,
                                      std::int64_t most) {
    if (!present(name)) return std::nullopt;
    return guarded<std::int64_t>(name, [&]() -> std::optional<std::int64_t> {
      const auto value = hdf5::read_integer(object_, name);
      if (!value) {
        add(errors_, location_, "attribute {} must be a single integer", name);
      } else if (*value == 1 && most > 1 && hdf5::is_truth_value(object_, name)) {
        add(errors_, location_, kNotANumber, name);
        return std::nullopt;
      } else if (*value < least || *value > most) {
        add(errors_, location_, "attribute {} is {}; it must be at least {}{}", name, *value, least,
            *value > most ? fmt::format(" and at most {}", most) : "");
        return std::nullopt;
      }
      return value;
    });
  }

  std::optional<double> number(const std::string& name, bool positive) {
    if (!present(name)) return std::nullopt;
    return guarded<double>(name, [&]() -> std::optional<double> {
      const auto value = hdf5::read_number(object_, name);
      if (!value) {
        add(errors_, location_, "attribute {} must be a single number", name);
      } else if (*value == 1.0 && hdf5::is_truth_value(object_, name)) {
        add(errors_, location_, kNotANumber, name);
        return std::nullopt;
      } else if (!std::isfinite(*value) || *value < 0.0 || (positive && *value == 0.0)) {
        add(errors_, location_, "attribute {} is {}; it must be finite and {}", name, *value,
            positive ? "above 0" : "at least 0");
        return std::nullopt;
      }
      return value;
    });
  }

  std::optional<std::string> text(const std::string& name) {
    if (!present(name)) return std::nullopt;
    return guarded<std::string>(name, [&]() {
      const auto value = hdf5::read_string(object_, name);
      if (!value) add(errors_, location_, "attribute {} must be a string", name);
      return value;
    });
  }

  bool has(const std::string& name) const { return hdf5::has_attribute(object_, name); }

 private:
  // False says 0 everywhere; True is 1 only where only 0 and 1 are allowed.
  static constexpr fmt::format_string<const std::string&> kNotANumber =
      "attribute {} is True, a truth value; store the number itself";

  bool present(const std::string& name) {
    if (has(name)) return true;
    add(errors_, location_, "attribute {} is missing; add it", name);
    return false;
  }

  template <class T, class Read>
  std::optional<T> guarded(const std::string& name, Read read) {
    try {
      return read();
    } catch (const hdf5::Error& error) {
      add(errors_, location_, "attribute {} cannot be read ({})", name, error.what());
      return std::nullopt;
    }
  }

  ErrorList& errors_;
  hid_t object_;
  std::string location_;
};

// Whether the root says that the file is of this format, of a version up to `newest`, which is
// returned; none with an error. Throws the errors found so far
// where it is another kind of file: its further errors would be meaningless.
std::optional<int> check_format(ErrorList& errors, Attributes& attributes,
                                const std::string& format, int newest = 1);

}  // namespace kvbench
