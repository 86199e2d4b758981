#include "python/method_calls.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "python/arrays.hpp"
#include "python/interruptible.hpp"
#include "python/kept_columns.hpp"
#include "system/error.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

void append(std::vector<double>& out, const ConstMatrix& matrix, Index rows) {
  for (Index i = 0; i < rows; ++i) {
    out.insert(out.end(), matrix.row(i), matrix.row(i) + matrix.cols);
  }
}

}  // namespace

PromptCopy::PromptCopy(const Stream& stream, Index p)
    : id(stream.id),
      shape(stream.shape),
      prompt(p),
      sinks(stream.sinks),
      alibi_slopes(stream.alibi_slopes) {
  append(keys, stream.keys, p);
  append(values, stream.values, p);
  for (const ConstMatrix& head : stream.queries) append(queries, head, query_rows());
}

Index PromptCopy::query_rows() const { return std::max<Index>(0, prompt - shape.first_query); }

nb::tuple PromptCopy::take() {
  return nb::make_tuple(numpy_array(std::move(queries), shape.heads_per_kv, query_rows(), shape.d),
                        numpy_array(std::move(keys), prompt, shape.d),
                        numpy_array(std::move(values), prompt, shape.dv), shape.scale, shape.window,
                        shape.softcap, id.sequence, id.layer, id.kv_head, sinks, alibi_slopes,
                        shape.chunk);
}

nb::object answer_of(const PythonMethod& method, const std::string& params, std::uint32_t seed,
                     std::vector<PromptCopy>& prompts) {
  nb::list given;
  for (PromptCopy& prompt : prompts) given.append(prompt.take());
  nb::object answer = method.ask(params, seed, given);
  if (nb::isinstance<nb::str>(answer)) throw CellError(nb::cast<std::string>(answer));
  return answer;
}

KeptRows rows_of(const PythonMethod& method, nb::handle columns, Index prompt) {
  try {
    return kept_rows(nb::cast<nb::dict>(columns), prompt);
  } catch (const InputError& error) {
    throw CellError(method.id + ": " + error.what());
  }
}

std::vector<KeptRows> kept_of(const PythonMethod& method, const std::string& params,
                              std::uint32_t seed, std::vector<PromptCopy> prompts) {
  std::vector<KeptRows> kept;
  on_calling_thread([&] {
    const nb::object answer = answer_of(method, params, seed, prompts);
    std::size_t at = 0;
    for (const nb::handle columns : answer) {
      kept.push_back(rows_of(method, columns, prompts.at(at++).prompt));
    }
  });
  return kept;
}

}  // namespace kvbench::python
