#include "results/distinct_records.hpp"

#include <fmt/format.h>

#include <utility>

#include "results/cell_field.hpp"
#include "system/error.hpp"
#include "system/hash.hpp"

namespace kvbench {

DistinctRecords::DistinctRecords(std::string path, std::string member)
    : path_(std::move(path)), member_(std::move(member)) {}

void DistinctRecords::add(const Json& record) {
  const std::size_t index = keys_.size();
  require_cell(record, index, path_, member_);
  const auto [first, is_new] = keys_.add(hash128(to_line(record.at("key"))));
  if (is_new) return;
  throw InputError(fmt::format(
      "{0}: /{1}/{2} and /{1}/{3} are of the same {4}; write the file anew with `kvbench run` or "
      "`kvbench merge`",
      path_, member_, first, index, member_ == "cells" ? "cell" : "layer"));
}

}  // namespace kvbench
