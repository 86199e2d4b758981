#include "output/inspection_document.hpp"

#include "numerics/norm.hpp"

namespace kvbench {
namespace {

// Meanings of the document's names; written into it.
Json definitions() {
  return {
      {"norms", "l2 norms of the rows as stored: queries over all stored rows of the group"},
      {"r", "max ||scale q|| over all stored query rows of the group (SubGen, ClusterGen)"},
      {"r_attention_rows", "the same over the rows of `attention`"},
      {"r_balancekv", "largest norm over keys and stored queries (BalanceKV)"},
      {"balancekv_exponent",
       "2 scale * r_balancekv^2, the exponent of BalanceKV's batch (Theorems 3.1 and 3.3)"},
      {"stable_rank", "||M||_F^2 / ||M||_op^2; null for a zero matrix"},
      {"delta",
       "radius of a cluster: the delta_quantile of the pairwise distances of 128 evenly "
       "spaced tokens of the whole stream"},
      {"delta_r", "delta * r; the bound grows like exp(2 delta_r)"},
      {"clusters", "m' of SubGen's rule at radius delta over the first clustering_tokens"},
      {"growth", "[number of first positions, their m']"},
      {"covering_radius",
       "[k, radius] of greedy farthest-first over the first clustering_tokens, "
       "from the oldest"},
      {"centers", "positions of its first 64 centres, in order of choice"},
      {"attention",
       "means over the rows [first_row, first_row + rows) and the query heads; "
       "fractions and percentages are of the tokens that a row sees"},
      {"entropy_nats", "entropy of softmax rows"},
      {"largest_logit", "the maximum, not a mean"},
      {"sparsity",
       "fraction of probabilities that round to 0 in half precision, that are at most "
       "a threshold, or at most a share of the row's largest"},
      {"top_mass",
       "mass of the top ceil(percent / 100 * visible) positions, ranked in each row "
       "(per_query) or by probability summed over the rows looked at (accumulated)"},
  };
}

Json norms_document(const NormSummary& norms) {
  static constexpr const char* kNames[NormSummary::kQuantiles] = {
      "min", "p1", "p5", "p10", "p25", "median", "p75", "p90", "p95", "p99", "max"};
  Json out = {{"count", norms.count}};
  if (norms.count == 0) return out;
  out["mean"] = norms.mean;
  out["rms"] = norms.rms;
  for (int k = 0; k < NormSummary::kQuantiles; ++k) out[kNames[k]] = norms.quantiles[k];
  return out;
}

Json points_document(const PointSet& set, const double* r) {
  Json out = {{"norms", norms_document(set.norms)},
              {"frobenius_norm", set.frobenius_norm},
              {"spectral_norm", set.spectral_norm},
              {"stable_rank", nullptr},
              {"clustering", Json::array()}};
  if (set.stable_rank) out["stable_rank"] = *set.stable_rank;
  for (const ClusterPoint& point : set.clusters) {
    Json entry = {{"delta_quantile", point.delta_quantile}, {"delta", point.delta}};
    if (r != nullptr) entry["delta_r"] = point.delta * *r;
    entry["clusters"] = point.clusters;
    entry["growth"] = point.growth;
    out["clustering"].push_back(std::move(entry));
  }
  out["covering_radius"] = set.covering_radius;
  out["centers"] = set.centers;
  return out;
}

Json thresholds(const std::vector<SparsityPoint>& points) {
  Json out = Json::array();
  for (const SparsityPoint& point : points) {
    out.push_back({{"threshold", point.threshold}, {"fraction", point.fraction}});
  }
  return out;
}

void add_summary(const AttentionSummary& summary, Json& out) {
  out["entropy_nats"] = summary.entropy_nats;
  out["largest_logit"] = summary.largest_logit;
  out["sparsity"] = {{"zero_in_fp16", summary.zero_in_fp16},
                     {"probability_at_most", thresholds(summary.absolute)},
                     {"share_of_largest_at_most", thresholds(summary.relative)}};
  Json& mass = out["top_mass"] = Json::array();
  for (std::size_t k = 0; k < summary.top_mass.size(); ++k) {
    mass.push_back({{"percent", AttentionSummary::kTopPercent[k]},
                    {"per_query", summary.top_mass[k]},
                    {"accumulated", summary.top_mass_accumulated[k]}});
  }
}

Json attention_document(int first_head, const StreamInspection& inspection) {
  if (!inspection.attention) return nullptr;
  Json out = {{"first_row", inspection.attention_first_row}, {"rows", inspection.attention_rows}};
  add_summary(*inspection.attention, out);
  Json& heads = out["per_query_head"] = Json::array();
  int head = first_head;
  for (const AttentionSummary& summary : inspection.attention_heads) {
    Json entry = {{"query_head", head++}};
    add_summary(summary, entry);
    heads.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

Json inspection_document(const DumpInfo& info, const std::string& fingerprint,
                         const InspectionOptions& options) {
  Json out = {{"schema_version", "1.0.0"},
              {"kind", "kvbench.inspection"},
              {"path", info.path},
              {"fingerprint", fingerprint},
              {"model", info.model},
              {"producer", info.producer},
              {"n_layers", info.n_layers},
              {"attributes", Json::array()},
              {"options",
               {{"rows", options.attention_rows},
                {"clustering_tokens", options.clustering_tokens},
                {"centers", options.centers},
                {"delta_quantiles", options.delta_quantiles}}},
              {"definitions", definitions()},
              {"sequences", Json::array()}};
  for (const auto& [name, value] : info.attributes) {
    out["attributes"].push_back({{"name", name}, {"value", value}});
  }
  return out;
}

Json sequence_document(const SequenceInfo& sequence) {
  Json out = {{"sequence", sequence.name},
              {"description", sequence.description},
              {"prompt_tokens", nullptr},
              {"layers", Json::array()}};
  if (sequence.prompt_tokens) out["prompt_tokens"] = *sequence.prompt_tokens;
  if (sequence.evidence) {
    Json spans = Json::array();
    for (const auto& [first, last] : sequence.evidence->spans) spans.push_back({first, last});
    out["evidence"] = {{"spans", std::move(spans)}, {"rows", sequence.evidence->rows}};
  }
  if (sequence.repeat) {
    for (const auto& [first, end, rows] : sequence.repeat->parts) {
      out["repeat"].push_back({first, end, rows});
    }
  }
  return out;
}

// By KV head.
std::vector<double> key_bias_norms(const LayerInfo& layer) {
  std::vector<double> out;
  for (Index head = 0; head < layer.kv_heads; ++head) {
    out.push_back(frobenius_norm({layer.key_bias.data() + head * layer.d, 1, layer.d}));
  }
  return out;
}

Json layer_document(const LayerInfo& layer) {
  Json out = {{"layer", layer.index},
              {"query_heads", layer.query_heads},
              {"kv_heads", layer.kv_heads},
              {"tokens", layer.tokens},
              {"query_rows", layer.query_rows},
              {"d", layer.d},
              {"dv", layer.dv},
              {"dtype", layer.dtype},
              {"scale", layer.scale},
              {"sliding_window", layer.window},
              {"logit_softcap", layer.softcap},
              {"out_rows", layer.out_rows},
              {"rope", layer.rope != nullptr},
              {"heads", Json::array()}};
  if (layer.kv_layer) out["kv_layer"] = *layer.kv_layer;
  if (!layer.readers.empty()) out["readers"] = layer.readers;
  if (layer.chunk > 0) out["chunk"] = layer.chunk;
  if (!layer.causal) out["causal"] = false;
  if (layer.value_in_key) out["value_in_key"] = layer.dv;
  if (!layer.sinks.empty()) out["sinks"] = layer.sinks;
  if (!layer.alibi_slopes.empty()) out["alibi_slopes"] = layer.alibi_slopes;
  if (!layer.key_bias.empty()) out["key_bias_norms"] = key_bias_norms(layer);
  if (layer.wo_v_l1) out["wo_v_l1"] = true;
  if (layer.repeat) out["repeat_rows"] = layer.repeat_rows;
  if (layer.hidden > 0) out["hidden"] = layer.hidden;
  if (layer.residual_rows > 0) out["residual_rows"] = layer.residual_rows;
  return out;
}

Json head_document(int kv_head, const StreamShape& shape, const StreamInspection& inspection) {
  const bool queries = inspection.queries.count > 0;
  Json out = {{"kv_head", kv_head}};
  if (queries) {
    out["r"] = inspection.r;
    out["r_attention_rows"] = inspection.r_attention_rows;
    out["r_balancekv"] = inspection.r_balancekv;
    out["balancekv_exponent"] = 2.0 * shape.scale * inspection.r_balancekv * inspection.r_balancekv;
  }
  out["clustering_tokens"] = inspection.clustering_tokens;
  out["queries"] = {{"norms", norms_document(inspection.queries)}};
  out["keys"] = points_document(inspection.keys, queries ? &inspection.r : nullptr);
  out["values"] = points_document(inspection.values, nullptr);
  out["attention"] = attention_document(kv_head * shape.heads_per_kv, inspection);
  if (inspection.attention_overflow) out["attention_missing"] = "logits overflow";
  if (!queries) out["attention_missing"] = "no stored queries";
  return out;
}

}  // namespace kvbench
