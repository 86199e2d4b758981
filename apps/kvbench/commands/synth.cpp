#include "synth/synth.hpp"

#include <fmt/core.h>

#include <memory>
#include <string>

#include "commands.hpp"
#include "exit_codes.hpp"
#include "json/file_kind.hpp"
#include "output/log.hpp"
#include "synth/synth_kinds.hpp"

namespace kvbench {
namespace {

struct SynthCommand {
  SynthOptions synth;
  std::string out;
};

std::string footer() {
  std::string text = "Kinds:\n";
  for (const SynthKind& kind : synth_kinds()) {
    text += fmt::format("  {:16}{}\n", kind.name, kind.description);
  }
  text += R"(
The same options and seed make the same file on every machine. The path is printed on stdout.

Examples:
  kvbench synth gaussian --out gaussian.h5
  kvbench synth clusterable --m 32 --delta 0.5 --tokens 8192 --dtype float32 --out clusters.h5
  kvbench synth heavy_hitters --m 8 --layers 4 --query-rows 256 --gzip 4 --out heavy.h5)";
  return text;
}

int run(const SynthCommand& command) {
  refuse_to_replace(command.out, WrittenKind::kHdf5);
  synthesize(command.synth, command.out);
  if (terminal_columns(stdout) > 0) {
    print_text("{}\n", command.out);
  } else {
    fmt::print("{}\n", command.out);  // for a script, byte by byte
  }
  return kExitDone;
}

}  // namespace

Command add_synth(CLI::App& app) {
  const auto options = std::make_shared<SynthCommand>();
  CLI::App* command = app.add_subcommand("synth", "Write a seeded synthetic dump");
  SynthOptions& synth = options->synth;
  const auto add = [command](const char* name, auto& value, const char* help) {
    command->add_option(name, value, help)->capture_default_str();
  };
  std::string kinds;
  for (const SynthKind& kind : synth_kinds()) kinds += (kinds.empty() ? "" : ",") + kind.name;
  command->add_option("KIND", synth.kind, "Kind of data (see below)")
      ->type_name("{" + kinds + "}")
      ->required();
  command->add_option("-o,--out", options->out, "File to write, replaced if it exists")->required();
  add("--tokens", synth.tokens, "Tokens n of each sequence");
  add("--layers", synth.layers, "Layers, numbered from 0");
  add("--kv-heads", synth.kv_heads, "KV heads");
  add("--group", synth.heads_per_kv, "Query heads per KV head");
  add("--d", synth.d, "Length of queries and keys");
  add("--dv", synth.dv, "Length of values, 0 = d");
  add("--query-rows", synth.query_rows, "Store queries for the last N positions, 0 = all");
  add("--out-rows", synth.out_rows, "Store exact outputs for at most the last N rows, 0 = none");
  add("--sequences", synth.sequences, "Sequences, named 0, 1, ..");
  command->add_option("--prompt-tokens", synth.prompt_tokens,
                      "Attribute prompt_tokens of the sequences; not written by default");
  add("--seed", synth.seed, "Seed of every draw");
  command->add_option("--dtype", synth.dtype, "Type of the elements")
      ->type_name("{float16,bfloat16,float32,float64}")
      ->capture_default_str();
  command->add_option("--scale", synth.scale, "Multiplies <q, k>; 1 / sqrt(d) by default");
  add("--sliding-window", synth.window, "Sliding window in tokens, 0 = none");
  add("--softcap", synth.softcap, "Soft-cap of the logits, 0 = none");
  command->add_option("--sinks", synth.sinks,
                      "Sink logits around this mean, one per query head; none by default");
  command->add_flag("--alibi", synth.alibi, "ALiBi slopes 2^(-8 h / Hq), h = 1, 2, ..");
  command->add_flag_callback(
      "--every-token", [options] { options->synth.causal = false; }, "Every row sees every token");
  add("--chunk", synth.chunk,
      "Length of chunks, 0 = none; a row sees only tokens of its own chunk");
  command->add_flag("--value-in-key", synth.value_in_key,
                    "Values are the first dv columns of keys");
  add("--m", synth.clusters,
      "Clusters (clusterable, focused), heavy tokens (heavy_hitters), content vectors (rope); 0 = "
      "16");
  add("--delta", synth.delta, "Largest diameter of a cluster (clusterable, focused)");
  add("--theta", synth.theta, "Base of the rotation's frequencies (rope)");
  add("--hidden", synth.hidden,
      "Columns of an output projection (wo), 0 = none; residual norms are written with it");
  command
      ->add_option("--evidence", synth.evidence,
                   "Tokens that the last row needs: first and last of each span, such as 3,7,12,12")
      ->type_name("FIRST,LAST")
      ->delimiter(',');
  add("--repeat", synth.repeat,
      "Tokens of a part in a pass that repeats the prompt (q_repeat, k_repeat), 0 = no pass; with "
      "--prompt-tokens");
  add("--gzip", synth.gzip, "Compression level 1 to 9, 0 = none");
  add("--chunk-rows", synth.chunk_rows, "Rows per chunk, 0 = contiguous (1024 with --gzip)");
  command->footer(footer());
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
