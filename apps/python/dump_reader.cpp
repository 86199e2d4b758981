#include "python/dump_reader.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dump/dump.hpp"
#include "json/json.hpp"
#include "python/arrays.hpp"
#include "system/error.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

Json layer_document(const LayerInfo& layer) {
  Json rope;
  if (layer.rope) {
    rope = {{"inv_freq", layer.rope->inv_freq}, {"interleaved", layer.rope->interleaved}};
  }
  const Json kv_layer = layer.kv_layer ? Json(*layer.kv_layer) : Json();
  return {{"layer", layer.index},
          {"kv_layer", kv_layer},
          {"readers", layer.readers},
          {"query_heads", layer.query_heads},
          {"kv_heads", layer.kv_heads},
          {"tokens", layer.tokens},
          {"query_rows", layer.query_rows},
          {"d", layer.d},
          {"dv", layer.dv},
          {"dtype", layer.dtype},
          {"scale", layer.scale},
          {"window", layer.window},
          {"softcap", layer.softcap},
          {"out_rows", layer.out_rows},
          {"chunk", layer.chunk},
          {"causal", layer.causal},
          {"value_in_key", layer.value_in_key ? layer.dv : 0},
          {"sinks", layer.sinks},
          {"alibi_slopes", layer.alibi_slopes},
          {"key_bias", layer.key_bias},
          {"hidden", layer.hidden},
          {"residual_rows", layer.residual_rows},
          {"rope", std::move(rope)}};
}

Json document(const DumpInfo& info) {
  Json out = {{"path", info.path},
              {"model", info.model},
              {"producer", info.producer},
              {"n_layers", info.n_layers}};
  out["sequences"] = Json::array();
  for (const SequenceInfo& sequence : info.sequences) {
    Json each = {{"name", sequence.name}, {"description", sequence.description}};
    each["prompt_tokens"] = sequence.prompt_tokens ? Json(*sequence.prompt_tokens) : Json();
    each["layers"] = Json::array();
    for (const LayerInfo& layer : sequence.layers) each["layers"].push_back(layer_document(layer));
    out["sequences"].push_back(std::move(each));
  }
  return out;
}

// For a layer of the dump: Python uses the names that document() lists.
const LayerInfo& layer_of(const Dump& dump, const std::string& sequence, int layer) {
  const SequenceInfo* found = dump.info().find_sequence(sequence);
  const LayerInfo* info = found == nullptr ? nullptr : found->find_layer(layer);
  if (info == nullptr) {
    throw InputError(dump.info().path + ": there is no layer " + std::to_string(layer) +
                     " of sequence '" + sequence + "'");
  }
  return *info;
}

// q [Hq, Nq, d], k [Hkv, n, d], v [Hkv, n, dv], and wo_v_l1 [Hq, n] or None. Queries of layers that
// read this one's keys, which follow its own in a stream, are left out.
nb::tuple read_layer(const Dump& dump, const std::string& sequence, int layer) {
  const LayerInfo& info = layer_of(dump, sequence, layer);
  const Index group = info.query_heads / info.kv_heads;
  std::vector<double> q, k, v, norms;
  {
    const nb::gil_scoped_release unlocked;
    q.reserve(info.query_heads * info.query_rows * info.d);
    k.reserve(info.kv_heads * info.tokens * info.d);
    v.reserve(info.kv_heads * info.tokens * info.dv);
    for (int head = 0; head < info.kv_heads; ++head) {
      const auto data = dump.read_stream(sequence, layer, head);
      k.insert(k.end(), data->keys.begin(), data->keys.end());
      v.insert(v.end(), data->values.begin(), data->values.end());
      for (Index g = 0; g < group; ++g) {
        q.insert(q.end(), data->queries[g].begin(), data->queries[g].end());
        if (!info.wo_v_l1) continue;
        norms.insert(norms.end(), data->wo_v_l1[g].begin(), data->wo_v_l1[g].end());
      }
    }
  }
  return nb::make_tuple(
      numpy_array(std::move(q), info.query_heads, info.query_rows, info.d),
      numpy_array(std::move(k), info.kv_heads, info.tokens, info.d),
      numpy_array(std::move(v), info.kv_heads, info.tokens, info.dv),
      info.wo_v_l1 ? numpy_array(std::move(norms), info.query_heads, info.tokens) : nb::none());
}

// [Hq, No, dv]
nb::object read_out(const Dump& dump, const std::string& sequence, int layer) {
  const LayerInfo& info = layer_of(dump, sequence, layer);
  std::vector<double> out;
  {
    const nb::gil_scoped_release unlocked;
    for (int head = 0; head < info.query_heads; ++head) {
      const UnfilledDoubles rows = dump.read_out(sequence, layer, head);
      out.insert(out.end(), rows.begin(), rows.end());
    }
  }
  return numpy_array(std::move(out), info.query_heads, info.out_rows, info.dv);
}

}  // namespace

void define_dump(nb::module_& module) {
  nb::class_<Dump>(module, "Dump")
      .def(
          "__init__",
          [](Dump* self, const std::string& path) {
            const nb::gil_scoped_release unlocked;
            new (self) Dump(path);
          },
          nb::arg("path"))
      .def("document", [](const Dump& dump) { return to_line(document(dump.info())); })
      .def("fingerprint",
           [](const Dump& dump) {
             const nb::gil_scoped_release unlocked;
             return dump.fingerprint();
           })
      .def("read_layer", &read_layer, nb::arg("sequence"), nb::arg("layer"))
      .def("read_out", &read_out, nb::arg("sequence"), nb::arg("layer"));
}

}  // namespace kvbench::python
