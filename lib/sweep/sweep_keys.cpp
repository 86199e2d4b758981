#include "sweep/sweep_keys.hpp"

#include <stdexcept>

namespace kvbench {

std::vector<std::string> SweepKeys::names() const {
  std::vector<std::string> all;
  for (const SweepKey& key : keys) all.push_back(key.name);
  return all;
}

const SweepKey& SweepKeys::at(const std::string& name) const {
  for (const SweepKey& key : keys) {
    if (key.name == name) return key;
  }
  throw std::logic_error("no key " + name + " in " + owner);
}

const SweepKeys& sweep_file_keys() {
  static const SweepKeys keys{
      "a sweep file",
      {{"schema_version", "version of this grammar", "add \"schema_version\": 1"},
       {"name", "results go to results/<name>", "name the sweep; its results go to results/<name>"},
       {"dumps", "paths of dumps, relative to this file; * ? [] as in a shell",
        "list the dumps to replay"},
       {"select", "what of the dumps is replayed; default: everything", ""},
       {"replay", "where the prompt ends", ""},
       {"evaluate", "which rows are scored", ""},
       {"seeds", "the seeds of randomised algorithms; default: the one seed 0", ""},
       {"storage", "codecs that what is kept is written by; crosses with the algorithms", ""},
       {"memory", "how memory is counted", ""},
       {"output", "what is written besides results.json", ""},
       {"algorithms", "what is replayed, over which parameters",
        "list what to replay, for example [{\"algorithm\": \"exact\"}]"}}};
  return keys;
}

const SweepKeys& select_keys() {
  static const SweepKeys keys{
      "select",
      {{"sequences", "names of sequences", ""},
       {"layers", "layers by their index in the model", ""},
       {"kv_heads", "KV heads of a layer", ""},
       {"tokens", "only the first N tokens of each sequence; several N are an axis", ""}}};
  return keys;
}

const SweepKeys& replay_keys() {
  static const SweepKeys keys{
      "replay",
      {{"prompt_tokens",
        "tokens of the prompt: a number, a fraction of the sequence, \"dump\" or \"default\"",
        ""}}};
  return keys;
}

const SweepKeys& evaluate_keys() {
  static const SweepKeys keys{
      "evaluate",
      {{"rows", "\"all\" decode rows, the last N, every N-th, a list, or rows of the prompt", ""}}};
  return keys;
}

const SweepKeys& rows_keys() {
  static const SweepKeys keys{"rows",
                              {{"last", "the last N decode rows", ""},
                               {"every", "every N-th row from the prompt's end on", ""},
                               {"prompt", "rows of the prompt, chosen as decode rows are", ""}}};
  return keys;
}

const SweepKeys& prompt_rows_keys() {
  static const SweepKeys keys{"prompt",
                              {{"last", "the last N rows of the prompt", ""},
                               {"every", "every N-th row from the first on", ""}}};
  return keys;
}

const SweepKeys& seeds_keys() {
  static const SweepKeys keys{"seeds",
                              {{"first", "the first seed; default: 0", ""},
                               {"count", "number of consecutive seeds; default: 1", ""}}};
  return keys;
}

const SweepKeys& memory_keys() {
  static const SweepKeys keys{
      "memory", {{"element_bytes", "bytes per number of a key or value; default: 2", ""}}};
  return keys;
}

const SweepKeys& output_keys() {
  static const SweepKeys keys{
      "output",
      {{"rows", "whether per-row values go to results.rows.h5; default: false", ""},
       {"caches", "whether what each cell keeps goes to cache files; default: false", ""}}};
  return keys;
}

const SweepKeys& entry_keys() {
  static const SweepKeys keys{
      "an entry of algorithms",
      {{"algorithm", "id or alias of an algorithm", "name an algorithm (kvbench list algorithms)"},
       {"params", "its parameters; each a value or an axis of values, and axes cross", ""},
       {"then", "a reading method that chooses by each query among the tokens that it kept", ""},
       {"label", "its name in tables and figures; default: the algorithm's id", ""},
       {"storage", "as of the file, for this entry alone", ""},
       {"where", "restricts the entry to some sequences, layers or KV heads", ""}}};
  return keys;
}

const SweepKeys& then_keys() {
  static const SweepKeys keys{
      "then",
      {{"algorithm", "id or alias of a reading method", "name one, for example quest"},
       {"params", "its parameters, as those of the entry", ""}}};
  return keys;
}

const SweepKeys& storage_keys() {
  static const SweepKeys keys{"an element of storage",
                              {{"keys", "codec of the keys; default: float", ""},
                               {"values", "codec of the values; default: float", ""},
                               {"by_layer", "storages of some layers each, instead of both", ""}}};
  return keys;
}

const SweepKeys& layer_storage_keys() {
  static const SweepKeys keys{
      "an element of by_layer",
      {{"storage", "storage of these layers", "name one, \"float\" for none"},
       {"layers", "layers by their index in the model; default: those of no other element", ""}}};
  return keys;
}

const SweepKeys& where_keys() {
  static const SweepKeys keys{"where",
                              {{"sequences", "names of sequences", ""},
                               {"layers", "layers by their index in the model", ""},
                               {"kv_heads", "KV heads of a layer", ""}}};
  return keys;
}

const Parameter& prompt_parameter() {
  static const Parameter parameter = [] {
    Parameter prompt;
    prompt.name = "prompt_tokens";
    prompt.kind = Parameter::Kind::kTokens;
    prompt.choices = {"dump", "default"};
    return prompt;
  }();
  return parameter;
}

const std::vector<int>& element_byte_sizes() {
  static const std::vector<int> sizes = {1, 2, 4, 8};
  return sizes;
}

}  // namespace kvbench
