// How a method written in Python is asked what it keeps of prompts.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "core/kept_cache.hpp"
#include "core/stream.hpp"
#include "python/python_method.hpp"

namespace kvbench::python {

// A method's view of a stream.
struct PromptCopy {
  PromptCopy(const Stream& stream, Index p);

  Index query_rows() const;
  // As arrays of Python, which have the numbers from then on; with the interpreter's lock.
  nanobind::tuple take();

  StreamId id;
  StreamShape shape;
  Index prompt;
  std::vector<double> queries, keys, values;
  std::vector<double> sinks, alibi_slopes;  // one per query head; empty: none
};

// The method's answer to the prompts, on the calling thread, with the interpreter's lock. Throws
// CellError where it keeps nothing valid.
nanobind::object answer_of(const PythonMethod& method, const std::string& params,
                           std::uint32_t seed, std::vector<PromptCopy>& prompts);

// kept_rows() of a method; what is wrong is its cell's failure.
KeptRows rows_of(const PythonMethod& method, nanobind::handle columns, Index prompt);

// Rows that the method keeps of each prompt; calls it, from a thread of the work.
std::vector<KeptRows> kept_of(const PythonMethod& method, const std::string& params,
                              std::uint32_t seed, std::vector<PromptCopy> prompts);

}  // namespace kvbench::python
