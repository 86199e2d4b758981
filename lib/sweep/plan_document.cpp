#include "sweep/plan_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

json dump_json(const PlannedDump& dump) {
  json ropes = json::array();
  std::map<const Rope*, std::size_t> place_of;
  json sequences = json::array();
  for (const PlannedSequence& sequence : dump.sequences) {
    json layers = json::array();
    for (const PlannedLayer& layer : sequence.layers) {
      const StreamShape& shape = layer.shape;
      json entry = {{"index", layer.index},
                    {"kv_heads", layer.kv_heads},
                    {"tokens", shape.tokens},
                    {"d", shape.d},
                    {"dv", shape.dv},
                    {"group", shape.heads_per_kv},
                    {"first_query", shape.first_query},
                    {"window", shape.window},
                    {"scale", shape.scale},
                    {"softcap", shape.softcap}};
      if (layer.hidden > 0) entry["hidden"] = layer.hidden;
      if (layer.residual_rows > 0) entry["residual_rows"] = layer.residual_rows;
      if (shape.chunk > 0) entry["chunk"] = shape.chunk;
      if (!shape.causal) entry["causal"] = false;
      if (shape.wo_v_l1) entry["wo_v_l1"] = true;
      if (shape.repeat) {
        for (const auto& [first, end, rows] : shape.repeat->parts) {
          entry["repeat"].push_back({first, end, rows});
        }
      }
      if (shape.sinks) entry["sinks"] = true;
      if (shape.alibi) entry["alibi"] = true;
      if (shape.value_in_key) entry["value_in_key"] = true;
      if (shape.key_bias) entry["key_bias"] = true;
      if (shape.rope) {
        const auto [place, is_new] = place_of.emplace(shape.rope.get(), ropes.size());
        if (is_new) {
          ropes.push_back(
              {{"inv_freq", shape.rope->inv_freq}, {"interleaved", shape.rope->interleaved}});
        }
        entry["rope"] = place->second;
      }
      layers.push_back(std::move(entry));
    }
    json entry = {{"name", sequence.name}, {"layers", std::move(layers)}};
    if (sequence.prompt_tokens) entry["prompt_tokens"] = *sequence.prompt_tokens;
    if (sequence.evidence) {
      entry["evidence"] = {{"spans", sequence.evidence->spans}, {"rows", sequence.evidence->rows}};
    }
    sequences.push_back(std::move(entry));
  }
  return {{"path", dump.path},         {"fingerprint", dump.fingerprint},
          {"model", dump.model},       {"n_layers", dump.n_layers},
          {"ropes", std::move(ropes)}, {"sequences", std::move(sequences)}};
}

Rope rope_of(const json& document) {
  Rope rope;
  rope.inv_freq = document.at("inv_freq").get<std::vector<double>>();
  rope.interleaved = document.at("interleaved");
  return rope;
}

json cache_json(const KeptCache& cache) {
  json heads = json::array();
  for (const KeptHead& head : cache.heads) {
    json entry = {{"sequence", head.sequence},
                  {"layer", head.layer},
                  {"kv_head", head.kv_head},
                  {"prompt_tokens", head.prompt},
                  {"rows", head.rows},
                  {"d", head.d},
                  {"dv", head.dv},
                  {"least_tokens", head.least_tokens},
                  {"query_heads", head.query_heads}};
    if (head.tokens) entry["tokens"] = *head.tokens;
    heads.push_back(std::move(entry));
  }
  return {{"path", cache.path},
          {"fingerprint", cache.fingerprint},
          {"method", cache.method},
          {"dump", cache.dump},
          {"heads", std::move(heads)}};
}

// Its rows are not there.
std::shared_ptr<const KeptCache> cache_of(const json& document) {
  auto cache = std::make_shared<KeptCache>();
  cache->path = document.at("path");
  cache->fingerprint = document.at("fingerprint");
  cache->method = document.at("method");
  cache->dump = document.at("dump");
  for (const json& given : document.at("heads")) {
    KeptHead& head = cache->heads.emplace_back();
    head.sequence = given.at("sequence");
    head.layer = given.at("layer");
    head.kv_head = given.at("kv_head");
    head.prompt = given.at("prompt_tokens");
    head.rows = given.at("rows");
    head.d = given.at("d");
    head.dv = given.at("dv");
    head.least_tokens = given.at("least_tokens");
    head.query_heads = given.at("query_heads");
    if (given.contains("tokens")) head.tokens = given["tokens"].get<Index>();
  }
  return cache;
}

json calibration_json(const Calibration& calibration) {
  json layers = json::array();
  for (const CalibratedLayer& layer : calibration.layers) {
    json entry = {{"index", layer.index},
                  {"kv_heads", layer.kv_heads},
                  {"group", layer.heads_per_kv},
                  {"d", layer.d}};
    if (layer.rope) {
      entry["rope"] = {{"inv_freq", layer.rope->inv_freq},
                       {"interleaved", layer.rope->interleaved}};
    }
    layers.push_back(std::move(entry));
  }
  return {{"path", calibration.path},     {"fingerprint", calibration.fingerprint},
          {"method", calibration.method}, {"params", calibration.params},
          {"model", calibration.model},   {"layers", std::move(layers)}};
}

// Its numbers are not there.
std::shared_ptr<const Calibration> calibration_of(const json& document) {
  auto calibration = std::make_shared<Calibration>();
  calibration->path = document.at("path");
  calibration->fingerprint = document.at("fingerprint");
  calibration->method = document.at("method");
  calibration->params = document.at("params");
  calibration->model = document.at("model");
  for (const json& given : document.at("layers")) {
    CalibratedLayer& layer = calibration->layers.emplace_back();
    layer.index = given.at("index");
    layer.kv_heads = given.at("kv_heads");
    layer.heads_per_kv = given.at("group");
    layer.d = given.at("d");
    if (given.contains("rope")) layer.rope = std::make_shared<const Rope>(rope_of(given["rope"]));
  }
  return calibration;
}

PlannedDump dump_of(const json& document) {
  PlannedDump dump;
  dump.path = document.at("path");
  dump.fingerprint = document.at("fingerprint");
  dump.model = document.at("model");
  dump.n_layers = document.at("n_layers");
  std::vector<std::shared_ptr<const Rope>> ropes;
  for (const json& entry : document.at("ropes")) {
    ropes.push_back(std::make_shared<const Rope>(rope_of(entry)));
  }
  for (const json& given : document.at("sequences")) {
    PlannedSequence& sequence = dump.sequences.emplace_back();
    sequence.name = given.at("name");
    if (given.contains("prompt_tokens")) sequence.prompt_tokens = given["prompt_tokens"];
    if (given.contains("evidence")) {
      Evidence evidence;
      given["evidence"].at("spans").get_to(evidence.spans);
      given["evidence"].at("rows").get_to(evidence.rows);
      sequence.evidence = std::make_shared<const Evidence>(std::move(evidence));
    }
    for (const json& entry : given.at("layers")) {
      PlannedLayer& layer = sequence.layers.emplace_back();
      layer.index = entry.at("index");
      layer.kv_heads = entry.at("kv_heads");
      StreamShape& shape = layer.shape;
      shape.tokens = entry.at("tokens");
      shape.d = entry.at("d");
      shape.dv = entry.at("dv");
      shape.heads_per_kv = entry.at("group");
      shape.first_query = entry.at("first_query");
      shape.window = entry.at("window");
      shape.scale = entry.at("scale");
      shape.softcap = entry.at("softcap");
      shape.n_layers = dump.n_layers;
      layer.hidden = entry.value("hidden", Index{0});
      layer.residual_rows = entry.value("residual_rows", Index{0});
      shape.chunk = entry.value("chunk", Index{0});
      shape.causal = entry.value("causal", true);
      shape.wo_v_l1 = entry.value("wo_v_l1", false);
      if (entry.contains("repeat")) {
        RepeatPass pass;
        for (const json& part : entry["repeat"]) {
          pass.parts.push_back({part.at(0), part.at(1), part.at(2)});
        }
        shape.repeat = std::make_shared<const RepeatPass>(std::move(pass));
      }
      shape.sinks = entry.value("sinks", false);
      shape.alibi = entry.value("alibi", false);
      shape.value_in_key = entry.value("value_in_key", false);
      shape.key_bias = entry.value("key_bias", false);
      if (entry.contains("rope")) shape.rope = ropes.at(entry["rope"]);
    }
  }
  return dump;
}

// Methods written in Python have a parameter `source`, and are known to those who ran them.
void require_methods(const json& sweep, const std::string& place,
                     const std::vector<AlgorithmDescription>& algorithms) {
  for (const json& entry : sweep.at("algorithms")) {
    const auto& id = entry.at("algorithm").get_ref<const std::string&>();
    const bool is_known = std::any_of(algorithms.begin(), algorithms.end(),
                                      [&](const auto& each) { return each.id == id; });
    if (is_known || !entry.at("params").contains("source")) continue;
    throw InputError(fmt::format(
        "{}: {} is a method written in Python; merge in Python, kb.merge(.., methods=[..])", place,
        id));
  }
}

}  // namespace

json plan_document(const Plan& plan) {
  json dumps = json::array();
  for (const PlannedDump& dump : plan.dumps) dumps.push_back(dump_json(dump));
  json document = {{"config", plan.config},
                   {"only", plan.only},
                   {"device", plan.device},
                   {"dumps", std::move(dumps)}};
  for (const auto& cache : plan.caches) document["caches"].push_back(cache_json(*cache));
  for (const auto& each : plan.calibrations) {
    document["calibrations"].push_back(calibration_json(*each));
  }
  return document;
}

Plan plan_from_document(const json& document, const std::string& hash, const std::string& place,
                        const std::vector<AlgorithmDescription>& algorithms, double memory_limit) {
  const std::string remedy = "; merge with the version that ran it (see provenance in its header)";
  try {
    std::vector<PlannedDump> dumps;
    for (const json& dump : document.at("dumps")) dumps.push_back(dump_of(dump));
    require_methods(document.at("config"), place, algorithms);
    SweepConfig config = resolved_sweep(document.at("config"), place, algorithms);
    if (document.contains("caches")) {
      std::vector<std::shared_ptr<const KeptCache>> caches;
      for (const json& cache : document["caches"]) caches.push_back(cache_of(cache));
      config.set_files(caches);
    }
    if (document.contains("calibrations")) {
      std::vector<std::shared_ptr<const Calibration>> calibrations;
      for (const json& each : document["calibrations"]) {
        calibrations.push_back(calibration_of(each));
      }
      config.set_files(calibrations);
    }
    Plan plan =
        make_plan(config, std::move(dumps), document.at("only").get<std::vector<std::string>>(),
                  document.at("device"), memory_limit);
    if (plan.hash == hash) return plan;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(place + ": its header lacks the plan (" + error.what() + ")" + remedy);
  } catch (const std::out_of_range&) {
    throw InputError(place + ": its header names RoPE data that it does not contain" + remedy);
  }
  throw InputError(place + ": this version of kvbench plans different cells for that sweep" +
                   remedy);
}

}  // namespace kvbench
