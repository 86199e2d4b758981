// A method as its class in Python describes it.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "json/json.hpp"

namespace kvbench::python {

struct PythonMethod {
  std::string id;
  std::string title;  // the class's name
  // [{"name", "kind": "integer" | "real" | "flag" | "text" | "choice", "default", "choices"}]; no
  // default: a value is required.
  nlohmann::json parameters;
  bool uses_seed = false;
  // Called for the prompt of one KV head, of all KV heads of a layer at once, or after every decode
  // row.
  enum class Decides { kPrompt, kLayer, kRows };
  Decides decides = Decides::kPrompt;
  // (parameters as JSON, seed, [(q [G, rows, d], k [P, d], v [P, dv], scale, window, softcap,
  // sequence, layer, KV head)]) -> [columns of kept_rows()] of each prompt, or why there are none.
  // With kRows a prompt's are (columns, or None for all of the prompt; step), where
  // step(row, tokens [m], logits [G, m]) -> (tokens, w_num, w_den) of what stays, None for all, or
  // what is wrong. The arrays are its own. Its exceptions end the replay or run.
  nanobind::object ask;
};

}  // namespace kvbench::python
