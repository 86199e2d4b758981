#include "hdf5/structure_errors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "hdf5/chunks.hpp"
#include "system/spelling.hpp"

namespace kvbench {
std::string join(const std::string& group, const std::string& name) {
  return group == "/" ? group + name : group + "/" + name;
}

std::optional<int> index_named(const std::string& name) {
  int index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return std::to_string(index) == name && index >= 0 ? std::optional(index) : std::nullopt;
}

bool is_newer_format(const hdf5::Error& error) {
  return std::string_view(error.what()).find("version") != std::string_view::npos;
}

std::string cannot_open(const hdf5::Error& error) {
  const std::string why = error.what();
  if (!is_newer_format(error)) {
    return fmt::format("cannot be opened ({}); make the file again", why);
  }
  return fmt::format(
      "cannot be opened ({}): it is in a newer file format than HDF5 {}.{}.{}, which this program "
      "has, can read; write the file again without libver=\"latest\", in h5py with "
      "h5py.File(PATH, \"w\", libver=(\"earliest\", \"v110\"))",
      why, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
}

std::string unreadable_structure(const hdf5::Error& error) {
  if (is_newer_format(error)) return "its structure " + cannot_open(error);
  return fmt::format("its structure cannot be read ({}); the file is truncated or damaged",
                     error.what());
}

void add_outside(ErrorList& errors, const std::string& place, const hdf5::OutsideError& error) {
  add(errors, place, "{}", error.what());
}

void refuse_unknown(ErrorList& errors, const std::string& place, const char* what,
                    const std::vector<std::string>& names, const std::vector<std::string>& known) {
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = did_you_mean(name, known);
    std::string remedy = near;
    if (near.empty()) {
      remedy =
          known.empty() ? "; remove it" : fmt::format("; known are {}", fmt::join(known, ", "));
    }
    add(errors, place, "unknown {} {}{}", what, name, remedy);
  }
}

bool is_group(ErrorList& errors, hid_t parent, const std::string& place, const std::string& name) {
  try {
    switch (hdf5::kind_of(parent, name)) {
      case hdf5::Kind::kGroup:
        return true;
      case hdf5::Kind::kNone:
        add(errors, place, "group is missing");
        return false;
      default:
        add(errors, place, "is not a group; move it out of its group, or remove it");
        return false;
    }
  } catch (const hdf5::OutsideError& error) {
    add_outside(errors, place, error);
    return false;
  }
}

hdf5::Handle dataset_of(ErrorList& errors, hid_t parent, const std::string& place,
                        const std::string& name) {
  try {
    try {
      return hdf5::open_dataset(parent, name);
    } catch (const hdf5::OutsideError&) {
      throw;
    } catch (const hdf5::Error&) {
      if (hdf5::kind_of(parent, name) == hdf5::Kind::kDataset) throw;
      add(errors, place, "is not a dataset");
    }
  } catch (const hdf5::OutsideError& error) {
    add_outside(errors, place, error);
  } catch (const hdf5::Error& error) {
    add(errors, place, "{}", cannot_open(error));
  }
  return {};
}

hdf5::Handle small_dataset_of(ErrorList& errors, hid_t parent, const std::string& place,
                              const std::string& name) {
  hdf5::Handle dataset = dataset_of(errors, parent, place, name);
  if (!dataset) return dataset;
  const auto why = unreadable_storage(dataset.get());
  if (!why) return dataset;
  add(errors, place, "{}", *why);
  return {};
}

}  // namespace kvbench
