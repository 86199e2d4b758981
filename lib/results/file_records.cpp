#include "results/file_records.hpp"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "results/cell_field.hpp"
#include "results/results_file.hpp"

namespace kvbench {
namespace {

// Records of one kind, each of another cell or layer.
class Distinct {
 public:
  Distinct(std::string path, const char* member, const char* name)
      : path_(std::move(path)), member_(member), name_(name) {}

  void add(const Json& record) {
    const std::size_t index = first_.size();
    require_cell(record, index, path_, member_);
    const auto [first, is_new] = first_.emplace(hash128_hex(to_line(record.at("key"))), index);
    if (is_new) return;
    throw InputError(fmt::format(
        "{0}: /{1}/{2} and /{1}/{3} are of the same {4}; write the file anew with `kvbench run` or "
        "`kvbench merge`",
        path_, member_, first->second, index, name_));
  }

 private:
  std::string path_;
  const char* member_;
  const char* name_;
  std::unordered_map<std::string, std::size_t> first_;  // by hash of the key
};

}  // namespace

FileRecords::FileRecords(std::string path, Kind kind) : path_(std::move(path)), kind_(kind) {
  Distinct cells(path_, "cells", "cell");
  Distinct layers(path_, "layers", "layer");
  rest_ = read_results(path_, [&](Json&& cell) { cells.add(cell); });
  rest_.erase("cells");
  if (const auto found = rest_.find("layers"); found != rest_.end()) {
    for (const Json& layer : *found) layers.add(layer);
    if (kind_ == Kind::kLayers) layers_ = std::move(*found);
    rest_.erase("layers");
  }
}

void FileRecords::visit(const std::function<void(const Json& record)>& each) const {
  if (kind_ == Kind::kLayers) {
    for (const Json& layer : layers_) each(layer);
    return;
  }
  std::size_t index = 0;
  read_results(path_, [&](Json&& cell) {
    require_cell(cell, index++, path_);
    each(cell);
  });
}

}  // namespace kvbench
