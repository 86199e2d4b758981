#include "synth/synth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numbers>
#include <string_view>

#include "core/stream.hpp"
#include "hdf5/element_type.hpp"
#include "numerics/counter_rng.hpp"
#include "synth/synth_kinds.hpp"
#include "synth/writer.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

void check_options(const SynthOptions& o, const std::string& path) {
  ErrorList errors;
  const auto require = [&](bool holds, const std::string& error) {
    if (!holds) errors.add(error);
  };
  const auto at_least = [&](const char* option, Index value, Index least, Index most) {
    require(value >= least && value <= most,
            fmt::format("{}: must be from {} to {}, got {}", option, least, most, value));
  };
  const auto& kinds = synth_kinds();
  const bool known =
      std::any_of(kinds.begin(), kinds.end(), [&](const SynthKind& k) { return k.name == o.kind; });
  std::vector<std::string> names;
  for (const SynthKind& kind : kinds) names.push_back(kind.name);
  require(known,
          fmt::format("unknown kind {}; expected one of {}", o.kind, fmt::join(names, ", ")));
  constexpr Index kMax = std::numeric_limits<std::int32_t>::max();
  at_least("--tokens", o.tokens, 1, kMax);
  at_least("--sequences", o.sequences, 1, 100000);
  at_least("--layers", o.layers, 1, 100000);
  at_least("--kv-heads", o.kv_heads, 1, 100000);
  at_least("--group", o.heads_per_kv, 1, 100000);
  at_least("--d", o.d, 1, 65536);
  at_least("--dv", o.dv, 0, 65536);
  at_least("--query-rows", o.query_rows, 0, std::max<Index>(o.tokens, 0));
  at_least("--out-rows", o.out_rows, 0, kMax);
  if (o.prompt_tokens) {
    at_least("--prompt-tokens", *o.prompt_tokens, 0, std::max<Index>(o.tokens - 1, 0));
  }
  at_least("--sliding-window", o.window, 0, kMax);
  at_least("--hidden", o.hidden, 0, 65536);
  require(o.evidence.size() % 2 == 0, "--evidence: expected FIRST,LAST of each span");
  for (std::size_t i = 0; i + 1 < o.evidence.size(); i += 2) {
    const Index first = o.evidence[i];
    const Index last = o.evidence[i + 1];
    const Index after = i == 0 ? 0 : o.evidence[i - 1] + 1;
    require(first >= after && first <= last && last < o.tokens,
            fmt::format("--evidence: spans must ascend, and lie in the {} tokens, got {},{}",
                        o.tokens, first, last));
  }
  at_least("--chunk", o.chunk, 0, kMax);
  at_least("--repeat", o.repeat, 0, kMax);
  require(o.repeat == 0 || (o.prompt_tokens && *o.prompt_tokens > 0),
          "--repeat: needs --prompt-tokens, which says how many tokens are repeated");
  require(!o.sinks || std::isfinite(*o.sinks),
          fmt::format("--sinks: must be finite, got {}", o.sinks.value_or(0.0)));
  require(o.chunk == 0 || o.window == 0,
          "--chunk: --sliding-window is given as well; give one of them");
  require(o.causal || (o.chunk == 0 && o.window == 0 && !o.alibi),
          "--every-token: excludes --chunk, --sliding-window and --alibi; leave these out");
  require(!o.value_in_key || o.dv <= o.d,
          fmt::format("--dv: must be <= --d ({}) with --value-in-key, got {}", o.d, o.dv));
  at_least("--gzip", o.gzip, 0, 9);
  at_least("--chunk-rows", o.chunk_rows, 0, kMax);
  at_least("--m", o.clusters, 0, std::max<Index>(o.tokens, 1));
  require(element_type_named(o.dtype).has_value(),
          fmt::format("--dtype: must be float16, bfloat16, float32 or float64, got {}", o.dtype));
  require(!o.scale || (std::isfinite(*o.scale) && *o.scale > 0.0),
          fmt::format("--scale: must be > 0, got {}", o.scale.value_or(0.0)));
  require(std::isfinite(o.softcap) && o.softcap >= 0.0,
          fmt::format("--softcap: must be >= 0, got {}", o.softcap));
  require(o.delta > 0.0 && o.delta <= 1e30,
          fmt::format("--delta: must be > 0 and <= 1e30, got {}", o.delta));
  require(std::isfinite(o.theta) && o.theta > 0.0,
          fmt::format("--theta: must be > 0, got {}", o.theta));
  require(o.kind != "rope" || o.d % 2 == 0,
          fmt::format("--d: must be even, for rope rotates pairs of dimensions, got {}", o.d));
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    errors.add(fmt::format("{}: there is no folder {}; make it first", path, folder.string()));
  }
  if (std::filesystem::is_directory(path, ignored)) {
    errors.add(fmt::format("{}: is a folder; name the file to write", path));
  }
  errors.throw_if_any();
}

// Exact attention of the last `out_rows` rows of query head `h` over the stored values.
std::vector<double> attention(const HeadData& head, const std::vector<double>& q, Index h,
                              const LayerLayout& layout) {
  const Index n = layout.tokens;
  const auto number = [h](const std::vector<double>& by_head) {
    return by_head.empty() ? 0.0 : by_head[h];
  };
  std::vector<double> out(layout.out_rows * layout.dv, 0.0);
  std::vector<double> x(n);
  for (Index r = 0; r < layout.out_rows; ++r) {
    const Index row = n - layout.out_rows + r;
    const double* query = q.data() + (row - (n - layout.query_rows)) * layout.d;
    const Index lo = layout.chunk > 0    ? row / layout.chunk * layout.chunk
                     : layout.window > 0 ? std::max<Index>(0, row - layout.window + 1)
                                         : 0;
    const Index end = layout.causal ? row + 1 : n;
    const bool has_sink = !layout.sinks.empty();
    double most = has_sink ? number(layout.sinks) : -std::numeric_limits<double>::infinity();
    for (Index j = lo; j < end; ++j) {
      const double* key = head.keys.data() + j * layout.d;
      double dot = 0.0;
      for (Index c = 0; c < layout.d; ++c) dot += query[c] * key[c];
      dot *= layout.scale;
      if (layout.softcap > 0.0) dot = layout.softcap * std::tanh(dot / layout.softcap);
      dot -= number(layout.alibi_slopes) * (row - j);
      x[j] = dot;
      most = std::max(most, dot);
    }
    double* answer = out.data() + r * layout.dv;
    double normalizer = has_sink ? std::exp(number(layout.sinks) - most) : 0.0;
    for (Index j = lo; j < end; ++j) {
      const double weight = std::exp(x[j] - most);
      normalizer += weight;
      const double* value = head.values.data() + j * layout.dv;
      for (Index c = 0; c < layout.dv; ++c) answer[c] += weight * value[c];
    }
    for (Index c = 0; c < layout.dv; ++c) answer[c] /= normalizer;
  }
  return out;
}

void round_all(ElementType type, std::vector<double>& values) {
  for (double& value : values) value = rounded_to(type, value);
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

std::vector<double> normals(const SynthOptions& options, const StreamId& id, const char* what,
                            Index count) {
  const CounterRng random(options.seed, id.hash(), std::string("synth/") + what);
  std::vector<double> out;
  for (Index i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint32_t>(i);
    const double radius = std::sqrt(-2.0 * std::log(1.0 - random.uniform53(2 * at)));
    out.push_back(radius * std::cos(2.0 * std::numbers::pi * random.uniform53(2 * at + 1)));
  }
  return out;
}

// The sinks and slopes of a layer.
void set_members(const SynthOptions& options, const StreamId& id, LayerLayout& layout) {
  layout.sinks.clear();
  layout.alibi_slopes.clear();
  if (options.sinks) {
    layout.sinks = normals(options, id, "sinks", layout.query_heads);
    for (double& sink : layout.sinks) sink += *options.sinks;
  }
  for (Index h = 0; options.alibi && h < layout.query_heads; ++h) {
    layout.alibi_slopes.push_back(std::exp2(-8.0 * (h + 1) / layout.query_heads));
  }
}

constexpr Index kRequestRows = 8;  // that ask for a part to be repeated

RepeatPass repeated_parts(const SynthOptions& options) {
  RepeatPass pass;
  if (options.repeat == 0) return pass;
  const Index prompt = *options.prompt_tokens;
  for (Index first = 0; first < prompt; first += options.repeat) {
    const Index end = std::min(prompt, first + options.repeat);
    pass.parts.push_back({first, end, kRequestRows + end - first});
  }
  return pass;
}

struct RepeatedHead {
  std::vector<double> keys;
  std::vector<std::vector<double>> queries;
};

// Rows that repeat a token have half of its key, and ask for it; those of a request are noise.
RepeatedHead synth_repeated(const SynthOptions& options, const RepeatPass& pass,
                            const LayerLayout& layout, ElementType type, const HeadData& head,
                            const StreamId& id) {
  RepeatedHead out;
  if (pass.parts.empty()) return out;
  const auto with_keys = [&](double share, std::vector<double> rows) {
    auto at = rows.begin();
    for (const RepeatPass::Part& part : pass.parts) {
      at += (part.rows - (part.end - part.first)) * layout.d;
      for (Index c = part.first * layout.d; c < part.end * layout.d; ++c, ++at) {
        *at += share * head.keys[c];
      }
    }
    round_all(type, rows);
    return rows;
  };
  const Index numbers = pass.rows() * layout.d;
  out.keys = with_keys(0.5, normals(options, id, "repeat/k", numbers));
  for (int g = 0; g < options.heads_per_kv; ++g) {
    out.queries.push_back(
        with_keys(1.0, normals(options, id, fmt::format("repeat/q{}", g).c_str(), numbers)));
  }
  return out;
}

}  // namespace

void synthesize(const SynthOptions& options, const std::string& path) {
  check_options(options, path);
  const ElementType type = *element_type_named(options.dtype);
  LayerLayout layout;
  layout.kv_heads = options.kv_heads;
  layout.query_heads = options.kv_heads * options.heads_per_kv;
  layout.tokens = options.tokens;
  layout.query_rows = options.query_rows == 0 ? options.tokens : options.query_rows;
  layout.d = options.d;
  layout.dv = options.dv == 0 ? options.d : options.dv;
  layout.out_rows = std::min(options.out_rows, layout.query_rows);
  layout.scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(options.d)));
  layout.window = options.window;
  layout.softcap = options.softcap;
  layout.hidden = options.hidden;
  Evidence evidence{{}, {options.tokens - 1}};
  for (std::size_t i = 0; i + 1 < options.evidence.size(); i += 2) {
    evidence.spans.emplace_back(options.evidence[i], options.evidence[i + 1]);
  }
  const RepeatPass repeat = repeated_parts(options);
  layout.repeat_rows = repeat.rows();
  layout.chunk = options.chunk;
  layout.causal = options.causal;
  layout.value_in_key = options.value_in_key;
  const bool second_format = options.sinks || options.alibi || !options.causal ||
                             options.chunk > 0 || options.value_in_key;

  StorageOptions storage;
  storage.type = type;
  storage.gzip = options.gzip;
  storage.chunk_rows = options.chunk_rows;
  DumpWriter writer(
      path, {"synthetic " + options.kind, "kvbench synth", options.layers, second_format ? 2 : 1},
      storage);
  if (options.kind == "rope") writer.write_rope(synth_rope(options));
  for (int s = 0; s < options.sequences; ++s) {
    const std::string sequence = std::to_string(s);
    writer.add_sequence(sequence, options.prompt_tokens,
                        fmt::format("{}, seed {}", options.kind, options.seed));
    if (!evidence.spans.empty()) writer.write_evidence(evidence);
    if (options.repeat > 0) writer.write_repeat(repeat);
    for (int layer = 0; layer < options.layers; ++layer) {
      set_members(options, {sequence, layer, 0}, layout);
      writer.add_layer(layer, layout);
      if (layout.hidden > 0) {
        writer.write_residual_norms(synth_residual_norms(options, layout, sequence, layer));
      }
      for (Index h = 0; layout.hidden > 0 && h < layout.query_heads; ++h) {
        writer.write_head("wo", h, synth_wo(options, layout, sequence, layer, h));
      }
      for (int h = 0; h < options.kv_heads; ++h) {
        HeadData head = synth_head(options, layout, type, {sequence, layer, h});
        round_all(type, head.keys);
        round_all(type, head.values);
        for (auto& q : head.queries) round_all(type, q);
        bool finite = all_finite(head.keys) && all_finite(head.values);
        for (const auto& q : head.queries) finite = finite && all_finite(q);
        const RepeatedHead repeated =
            synth_repeated(options, repeat, layout, type, head, {sequence, layer, h});
        finite = finite && all_finite(repeated.keys);
        for (const auto& q : repeated.queries) finite = finite && all_finite(q);
        if (!finite) {
          throw InputError(fmt::format(
              "--dtype: values exceed {}, the largest {}; use --dtype float32, or smaller --m or "
              "--delta",
              largest_finite(type), options.dtype));
        }
        writer.write_head("k", h, head.keys);
        if (layout.repeat_rows > 0) writer.write_head("k_repeat", h, repeated.keys);
        if (options.value_in_key) {
          head.values.clear();
          for (Index j = 0; j < layout.tokens; ++j) {
            const double* key = head.keys.data() + j * layout.d;
            head.values.insert(head.values.end(), key, key + layout.dv);
          }
        } else {
          writer.write_head("v", h, head.values);
        }
        for (Index g = 0; g < options.heads_per_kv; ++g) {
          const auto& q = head.queries[g];
          const Index query_head = h * options.heads_per_kv + g;
          writer.write_head("q", query_head, q);
          if (layout.repeat_rows > 0) {
            writer.write_head("q_repeat", query_head, repeated.queries[g]);
          }
          if (layout.out_rows == 0) continue;
          writer.write_head("out", query_head, attention(head, q, query_head, layout));
        }
      }
    }
  }
  writer.finish();
}

}  // namespace kvbench
