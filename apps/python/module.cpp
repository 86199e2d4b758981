// kvbench._core: what the package kvbench calls of the library. Its Python side
// (kvbench/*.py) has the documentation; _core.pyi its types.

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "json/json.hpp"
#include "kernels/cpu_kernels.hpp"
#include "output/list_document.hpp"
#include "python/arrays.hpp"
#include "python/dump_reader.hpp"
#include "python/interruptible.hpp"
#include "python/method.hpp"
#include "python/run.hpp"
#include "results/provenance.hpp"
#include "run/replay_stream.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"
#include "system/stop.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

// Where a stream comes from and how it attends: what a dump's attributes say.
struct StreamOptions {
  std::string sequence;
  int layer;
  int head;
  int n_layers;
  double scale;
  Index window;
  double softcap;
  std::optional<std::pair<std::vector<double>, bool>> rope;  // inv_freq, interleaved
  Index chunk;
  bool causal;
  bool value_in_key;
  std::vector<double> sinks;  // [G] or empty
  std::vector<double> alibi_slopes;
  std::vector<double> key_bias;  // [d] or empty
};

void require_shapes(const DoubleStack& q, const DoubleStack& k, const DoubleStack& v) {
  ErrorList errors;
  const auto require = [&](const char* array, const char* what, Index got, Index expected) {
    if (got != expected) {
      errors.add(fmt::format("{}: expected {} {}, got {}", array, expected, what, got));
    }
  };
  require("k", "KV head (shape [n, d])", k.heads(), 1);
  require("v", "KV head (shape [n, dv])", v.heads(), 1);
  require("v", "tokens, as k has", v.rows(), k.rows());
  require("q", "dimensions, as k has", q.columns(), k.columns());
  if (q.rows() > k.rows()) {
    errors.add(fmt::format("q: must have at most {} rows, one per token of k, got {}", k.rows(),
                           q.rows()));
  }
  errors.throw_if_any();
}

void require_norms(const DoubleStack& norms, Index query_heads, Index tokens) {
  if (norms.heads() == 1 && norms.rows() == query_heads && norms.columns() == tokens) return;
  throw InputError(fmt::format(
      "wo_v_l1: expected the shape [G, n] = [{}, {}], got [{}{}, {}]", query_heads, tokens,
      norms.heads() == 1 ? "" : fmt::format("{}, ", norms.heads()), norms.rows(), norms.columns()));
}

// As the attributes of a dump's layer are checked.
void require_attributes(const StreamOptions& options, Index d, Index heads) {
  ErrorList errors;
  const auto require = [&](bool is_met, const char* name, auto got, const char* expected) {
    if (!is_met) errors.add(fmt::format("{}: must be {}, got {}", name, expected, got));
  };
  require(std::isfinite(options.scale) && options.scale > 0.0, "scale", options.scale,
          "finite and above 0");
  require(std::isfinite(options.softcap) && options.softcap >= 0.0, "softcap", options.softcap,
          "finite and at least 0");
  require(options.window >= 0, "sliding_window", options.window, "at least 0 tokens");
  require(options.layer >= 0, "layer", options.layer, "at least 0");
  require(options.head >= 0, "head", options.head, "at least 0");
  require(options.n_layers > options.layer, "n_layers", options.n_layers, "above layer");
  if (options.rope && 2 * std::ssize(options.rope->first) > d) {
    errors.add(
        fmt::format("rope: rotates {} dimensions and k has {}", 2 * options.rope->first.size(), d));
  }
  require(options.chunk >= 0, "attention_chunk", options.chunk, "at least 0 tokens");
  require(options.chunk == 0 || options.window == 0, "attention_chunk", options.chunk,
          "0 where there is a sliding_window");
  require(options.causal || (options.chunk == 0 && options.window == 0), "causal", options.causal,
          "True where there is a chunk or a sliding_window");
  require(options.causal || options.alibi_slopes.empty(), "causal", options.causal,
          "True where there are alibi_slopes");
  const auto by_head = [&](const char* name, const std::vector<double>& numbers, double least) {
    require(numbers.empty() || numbers.size() == static_cast<std::size_t>(heads), name,
            numbers.size(), "one number per query head");
    for (const double each : numbers) {
      require(std::isfinite(each) && each >= least, name, each,
              least == 0.0 ? "finite and at least 0" : "finite");
    }
  };
  by_head("sink_logits", options.sinks, -std::numeric_limits<double>::infinity());
  by_head("alibi_slopes", options.alibi_slopes, 0.0);
  const std::vector<double>& bias = options.key_bias;
  require(bias.empty() || std::ssize(bias) == d, "key_bias", bias.size(),
          "one number per dimension of k");
  for (const double each : bias) require(std::isfinite(each), "key_bias", each, "finite");
  errors.throw_if_any();
}

Stream stream_of(const StreamOptions& options, const DoubleStack& q, const DoubleStack& k,
                 const DoubleStack& v, const std::optional<DoubleStack>& wo_v_l1) {
  require_shapes(q, k, v);
  require_attributes(options, k.columns(), q.heads());
  if (wo_v_l1) require_norms(*wo_v_l1, q.heads(), k.rows());
  Stream stream;
  stream.id = {options.sequence, options.layer, options.head};
  stream.shape.tokens = k.rows();
  stream.shape.d = k.columns();
  stream.shape.dv = v.columns();
  stream.shape.heads_per_kv = static_cast<int>(q.heads());
  stream.shape.first_query = k.rows() - q.rows();
  stream.shape.window = options.window;
  stream.shape.scale = options.scale;
  stream.shape.softcap = options.softcap;
  stream.shape.n_layers = options.n_layers;
  stream.shape.chunk = options.chunk;
  stream.shape.causal = options.causal;
  stream.shape.value_in_key = options.value_in_key;
  stream.shape.sinks = !options.sinks.empty();
  stream.shape.alibi = !options.alibi_slopes.empty();
  stream.sinks = options.sinks;
  stream.alibi_slopes = options.alibi_slopes;
  stream.shape.key_bias = !options.key_bias.empty();
  stream.key_bias = options.key_bias;
  if (options.rope) {
    stream.shape.rope = std::make_shared<const Rope>(
        Rope{.inv_freq = options.rope->first, .interleaved = options.rope->second});
  }
  stream.keys = k.matrix(0);
  stream.values = v.matrix(0);
  for (Index g = 0; g < q.heads(); ++g) stream.queries.push_back(q.matrix(g));
  stream.shape.wo_v_l1 = wo_v_l1.has_value();
  for (Index g = 0; wo_v_l1 && g < q.heads(); ++g) {
    stream.wo_v_l1.push_back(wo_v_l1->matrix(0).row(g));
  }
  return stream;
}

// As Python has it: the record as JSON text; rows; outputs [G, R, dv]; token, begin and end of
// stays.
nb::tuple result_of(StreamCellResult&& result, const StreamShape& shape) {
  const std::size_t stays = result.kept.size();
  std::vector<std::int32_t> tokens(stays);
  std::vector<std::int64_t> begins(stays);
  std::vector<std::int64_t> ends(stays);
  for (std::size_t i = 0; i < stays; ++i) {
    tokens[i] = result.kept[i].token;
    begins[i] = result.kept[i].begin;
    ends[i] = result.kept[i].end;
  }
  const std::size_t rows = result.rows.size();
  const bool is_answered = !result.outputs.empty();
  return nb::make_tuple(to_line(result.record), numpy_array(std::move(result.rows), rows),
                        numpy_array(std::move(result.outputs), is_answered ? shape.heads_per_kv : 0,
                                    is_answered ? rows : 0, is_answered ? shape.dv : 0),
                        numpy_array(std::move(tokens), stays),
                        numpy_array(std::move(begins), stays), numpy_array(std::move(ends), stays));
}

nb::tuple replay_arrays(const AnyArray& q, const AnyArray& k, const AnyArray& v,
                        const std::optional<AnyArray>& wo_v_l1, const std::string& sequence,
                        int layer, int head, int n_layers, double scale, Index window,
                        double softcap, std::optional<std::pair<std::vector<double>, bool>> rope,
                        Index chunk, bool causal, bool value_in_key, std::vector<double> sinks,
                        std::vector<double> alibi_slopes, std::vector<double> key_bias,
                        const std::string& fingerprint, const std::string& sweep,
                        const std::string& place, const std::string& repro, int threads,
                        const Methods& methods) {
  const StreamOptions options{sequence,
                              layer,
                              head,
                              n_layers,
                              scale,
                              window,
                              softcap,
                              std::move(rope),
                              chunk,
                              causal,
                              value_in_key,
                              std::move(sinks),
                              std::move(alibi_slopes),
                              std::move(key_bias)};
  const Algorithms algorithms(methods);
  StreamCellResult result;
  StreamShape shape;
  std::atomic<bool> stop{false};
  run_interruptible(
      [&] {
        if (threads > 0) set_thread_count(threads);
        const Stoppable stoppable(stop);
        const DoubleStack queries("q", q);
        const DoubleStack keys("k", k);
        const DoubleStack values("v", v);
        std::optional<DoubleStack> norms;
        if (wo_v_l1) norms.emplace("wo_v_l1", *wo_v_l1);
        const Stream stream = stream_of(options, queries, keys, values, norms);
        for (const DoubleStack* each : {&queries, &keys, &values}) each->require_finite();
        if (norms) norms->require_finite();
        shape = stream.shape;
        result = replay_stream(
            {.stream = stream,
             .fingerprint = fingerprint.empty() ? stream_fingerprint(stream) : fingerprint,
             .sweep = nlohmann::json::parse(sweep),
             .place = place,
             .repro = repro},
            cpu_kernels(), algorithms.all());
      },
      stop);
  return result_of(std::move(result), shape);
}

// Whether kb.replay would compute with the array's own memory.
bool shares_memory(const AnyArray& array) { return !DoubleStack("array", array).is_copy(); }

std::string joined(const std::vector<std::string>& messages) {
  std::string text;
  for (const std::string& message : messages) text += (text.empty() ? "" : "\n") + message;
  return text;
}

// The library's errors as exceptions of Python: those of the input as kvbench.Error.
void define_exceptions(nb::module_& module) {
  static const nb::object& error =
      *new nb::exception<InputError>(module, "Error", PyExc_ValueError);
  error.attr("__module__") = "kvbench";
  error.attr("__doc__") =
      "Errors of the input, in the program's words: one line per error. `reasons` lists "
      "them.";
  error.attr("reasons") = nb::module_::import_("builtins")
                              .attr("property")(nb::cpp_function([](const nb::handle& self) {
                                return nb::str(self).attr("split")("\n");
                              }));
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const InputError& each) {
      PyErr_SetString(error.ptr(), joined(each.messages()).c_str());
    } catch (const CellError& each) {
      PyErr_SetString(error.ptr(), each.what());
    } catch (const IoError& each) {
      PyErr_SetString(PyExc_OSError, each.what());
    } catch (const DeviceError& each) {
      PyErr_SetString(PyExc_RuntimeError, each.what());
    } catch (const BugError& each) {
      PyErr_SetString(PyExc_RuntimeError,
                      ("kvbench: a bug, please report it: " + joined(reasons_of(each))).c_str());
    }
  });
}

}  // namespace

void define(nb::module_& module) {
  define_exceptions(module);
  define_dump(module);
  define_run(module);
  module.def("version", &program_version);
  module.def("instruction_set", &instruction_set);
  module.def("algorithms", [] { return to_line(algorithms_document()); });
  module.def("metrics", [] { return to_line(metrics_document()); });
  module.def("storage", [] { return to_line(storage_document()); });
  module.def("replay", &replay_arrays, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::kw_only(),
             nb::arg("wo_v_l1").none(), nb::arg("sequence"), nb::arg("layer"), nb::arg("head"),
             nb::arg("n_layers"), nb::arg("scale"), nb::arg("window"), nb::arg("softcap"),
             nb::arg("rope").none(), nb::arg("chunk"), nb::arg("causal"), nb::arg("value_in_key"),
             nb::arg("sinks"), nb::arg("alibi_slopes"), nb::arg("key_bias"), nb::arg("fingerprint"),
             nb::arg("sweep"), nb::arg("place"), nb::arg("repro"), nb::arg("threads"),
             nb::arg("methods"));
  module.def("shares_memory", &shares_memory, nb::arg("array"));
}

}  // namespace kvbench::python

NB_MODULE(_core, module) { kvbench::python::define(module); }
