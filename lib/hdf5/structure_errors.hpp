// Errors by their place in the file, common to the parts of the structure check.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hdf5/hdf5.hpp"
#include "system/error.hpp"

namespace kvbench {

template <class... Args>
void add(ErrorList& errors, const std::string& place, fmt::format_string<Args...> format,
         Args&&... args) {
  errors.add(place, fmt::format(format, std::forward<Args>(args)...));
}

std::string join(const std::string& group, const std::string& name);

// The 0-based index in decimal that a group is named for; none for other names.
std::optional<int> index_named(const std::string& name);

// Whether `name` below `parent` is a group of this file; an error where it is not. `place`: its
// own.
bool is_group(ErrorList& errors, hid_t parent, const std::string& place, const std::string& name);

// The dataset `name` below `parent`; none, and an error, where it or its elements are not of this
// file.
hdf5::Handle dataset_of(ErrorList& errors, hid_t parent, const std::string& place,
                        const std::string& name);

// The same of a dataset that is read whole; an error, too, where its elements cannot be.
hdf5::Handle small_dataset_of(ErrorList& errors, hid_t parent, const std::string& place,
                              const std::string& name);

// An error for each of `names` that is not one of `known`: a misspelt one would be taken for one
// that is not there. `what` it is: "attribute", "dataset", ..
void refuse_unknown(ErrorList& errors, const std::string& place, const char* what,
                    const std::vector<std::string>& names, const std::vector<std::string>& known);

// Whether the library met a version of a structure that it does not know.
bool is_newer_format(const hdf5::Error& error);

// Why an object cannot be opened, and what to do: "cannot be opened (REASON); REMEDY".
std::string cannot_open(const hdf5::Error& error);

// The same of a structure: "its structure cannot be read (REASON); REMEDY".
std::string unreadable_structure(const hdf5::Error& error);

// An error for what would have been read from elsewhere.
void add_outside(ErrorList& errors, const std::string& place, const hdf5::OutsideError& error);

}  // namespace kvbench
