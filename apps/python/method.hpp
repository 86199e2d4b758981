// Methods written in Python as algorithms of the library.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithm.hpp"
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

// The method is asked on the calling thread (interruptible.hpp), once per cell; one of a whole
// layer is replayed on the whole model, is asked once per layer, and fails layer by layer. Prompts
// are copied for it. `method` must outlive the description.
AlgorithmDescription describe_method(const PythonMethod& method);

// Methods as the Python side gives them: id, title, parameters as JSON, uses_seed, what it decides
// ("prompt", "layer" or "rows"), ask.
using Methods = std::vector<
    std::tuple<std::string, std::string, std::string, bool, std::string, nanobind::object>>;

// The library's algorithms, and these. Made and ended with the interpreter's lock.
class Algorithms {
 public:
  explicit Algorithms(const Methods& given);

  const std::vector<AlgorithmDescription>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<PythonMethod>> methods_;
  std::vector<AlgorithmDescription> all_;
};

}  // namespace kvbench::python
