#include "python/kept_columns.hpp"

#include <fmt/format.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <vector>

#include "system/error.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

template <class T>
std::vector<T> column(const nb::dict& columns, const char* name) {
  if (!columns.contains(name)) return {};
  const auto array = nb::cast<nb::ndarray<const T, nb::c_contig, nb::device::cpu>>(columns[name]);
  return {array.data(), array.data() + array.size()};
}

// One number where all rows weigh the same in both sums, two where they do not, none where all are
// 1.
std::uint8_t weight_numbers(const std::vector<KeptRow>& rows) {
  const auto all = [&](const auto& holds) { return std::all_of(rows.begin(), rows.end(), holds); };
  if (all([](const KeptRow& row) { return row.w_num == 1.0 && row.w_den == 1.0; })) return 0;
  return all([](const KeptRow& row) { return row.w_num == row.w_den; }) ? 1 : 2;
}

}  // namespace

KeptRows kept_rows(const nb::dict& columns, Index prompt) {
  KeptRows kept;
  kept.prompt = prompt;
  const auto token = column<std::int64_t>(columns, "token");
  const auto begin = column<std::int64_t>(columns, "begin");
  const auto end = column<std::int64_t>(columns, "end");
  const auto head = column<std::int64_t>(columns, "head");
  const auto numerator = column<double>(columns, "weight_numerator");
  const auto denominator = column<double>(columns, "weight_denominator");
  kept.keys = column<double>(columns, "key");
  kept.values = column<double>(columns, "value");
  kept.rows.resize(token.size());
  for (std::size_t r = 0; r < token.size(); ++r) {
    KeptRow& row = kept.rows[r];
    row.token = static_cast<std::int32_t>(token[r]);
    row.w_num = numerator.at(r);
    row.w_den = denominator.at(r);
    row.begin = begin.empty() ? prompt : begin[r];
    if (!end.empty()) row.end = end[r];
    if (!head.empty()) row.head = static_cast<std::int16_t>(std::min<std::int64_t>(head[r], 1024));
    if (row.begin < prompt) {
      throw InputError(
          fmt::format("begin: row {} begins at {}, in the prompt of {} tokens; rows "
                      "are kept for decode rows",
                      r, row.begin, prompt));
    }
  }
  const std::uint8_t numbers = weight_numbers(kept.rows);
  for (KeptRow& row : kept.rows) row.weight_numbers = numbers;
  return kept;
}

}  // namespace kvbench::python
