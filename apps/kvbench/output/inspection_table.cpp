#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "output/inspection_document.hpp"
#include "output/log.hpp"
#include "output/table.hpp"

namespace kvbench {

namespace {

constexpr double kHeadlineQuantile = 0.05;

// Four significant digits, or a dash if the number is not finite.
std::string number(const Json& value) {
  if (!value.is_number()) return "-";
  if (value.is_number_integer()) return fmt::format("{}", value.get<long long>());
  return std::isfinite(value.get<double>()) ? fmt::format("{:.4g}", value.get<double>()) : "-";
}

std::string member(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) ? number(object[key]) : "-";
}

std::string dash_if_zero(const Json& value) {
  return value.get<double>() == 0.0 ? "-" : number(value);
}

std::size_t headline(const Json& quantiles) {
  std::size_t best = 0;
  for (std::size_t k = 1; k < quantiles.size(); ++k) {
    const auto off = [&](std::size_t i) {
      return std::fabs(quantiles[i].get<double>() - kHeadlineQuantile);
    };
    if (off(k) < off(best)) best = k;
  }
  return best;
}

// body(layer and head, document of the head), the first for the first two columns of a table.
template <class F>
void for_each_head(const Json& sequence, const F& body) {
  for (const Json& layer : sequence["layers"]) {
    for (const Json& head : layer["heads"]) {
      body({number(layer["layer"]), number(head["kv_head"])}, head);
    }
  }
}

// Columns of layer and head, then these.
Table head_table(std::vector<Column> further) {
  std::vector<Column> columns = {{"layer", Align::kRight, 5}, {"head", Align::kRight, 4}};
  columns.insert(columns.end(), further.begin(), further.end());
  return Table(std::move(columns), " ");
}

// A line for each layer with more than the table has.
std::string members_text(const Json& sequence) {
  std::string text;
  for (const Json& layer : sequence["layers"]) {
    std::vector<std::string> has;
    const auto by_head = [&](const char* name) {
      if (!layer.contains(name)) return;
      const auto all = layer[name].get<std::vector<double>>();
      const auto [least, most] = std::minmax_element(all.begin(), all.end());
      has.push_back(fmt::format("{} {:.4g} to {:.4g}", name, *least, *most));
    };
    if (layer.contains("kv_layer")) {
      has.push_back("reads the keys and values of layer " + number(layer["kv_layer"]) +
                    ", which has its query heads, too");
    }
    if (layer.contains("causal")) has.emplace_back("every row sees every token");
    if (layer.contains("chunk")) has.push_back("chunks of " + number(layer["chunk"]));
    if (layer.contains("value_in_key")) has.emplace_back("values in keys");
    by_head("sinks");
    by_head("alibi_slopes");
    by_head("key_bias_norms");
    if (layer.contains("hidden")) has.push_back("wo to " + number(layer["hidden"]));
    if (layer.contains("residual_rows")) {
      has.push_back("residual_norm of " + number(layer["residual_rows"]) + " rows");
    }
    if (has.empty()) continue;
    text += fmt::format("layer {}: {}\n", number(layer["layer"]), fmt::join(has, ", "));
  }
  if (sequence.contains("evidence")) {
    const Json& evidence = sequence["evidence"];
    text += fmt::format("evidence: {} spans, asked for by {} rows\n", evidence["spans"].size(),
                        evidence["rows"].size());
  }
  return text;
}

std::string layers_text(const Json& sequence, std::size_t columns) {
  Table table({{"layer", Align::kRight, 5},
               {"q heads", Align::kRight, 8, 4},
               {"KV heads", Align::kRight, 8, 6},
               {"n", Align::kRight, 8},
               {"q rows", Align::kRight, 8, 5},
               {"d / dv", Align::kRight, 9},
               {"dtype", Align::kRight, 9, 7},
               {"scale", Align::kRight, 10, 8},
               {"window", Align::kRight, 7, 3},
               {"soft-cap", Align::kRight, 8, 2},
               {"out", Align::kRight, 5, 1}},
              " ");
  for (const Json& layer : sequence["layers"]) {
    table.add({number(layer["layer"]), number(layer["query_heads"]), number(layer["kv_heads"]),
               number(layer["tokens"]), number(layer["query_rows"]),
               number(layer["d"]) + " / " + number(layer["dv"]), layer["dtype"].get<std::string>(),
               number(layer["scale"]), dash_if_zero(layer["sliding_window"]),
               dash_if_zero(layer["logit_softcap"]), dash_if_zero(layer["out_rows"])});
  }
  return table.text(columns) + members_text(sequence);
}

std::string norms_text(const Json& sequence, std::size_t quantile, std::size_t columns) {
  Table table = head_table({{"||q|| median, max", Align::kRight, 17, 1},
                            {"||k|| median, max", Align::kRight, 17, 5},
                            {"||v|| median, max", Align::kRight, 17, 2},
                            {"r", Align::kRight, 8},
                            {"srank V", Align::kRight, 8, 6},
                            {"delta", Align::kRight, 8},
                            {"delta r", Align::kRight, 8, 3},
                            {"m' keys", Align::kRight, 7},
                            {"m' vals", Align::kRight, 7, 4}});
  for_each_head(sequence, [&](std::vector<std::string> row, const Json& head) {
    for (const char* of : {"queries", "keys", "values"}) {
      const Json& norms = head[of]["norms"];
      row.push_back(fmt::format("{:>8} {:>8}", member(norms, "median"), member(norms, "max")));
    }
    const auto at = [&](const char* of) {
      const Json& curve = head[of]["clustering"];
      return quantile < curve.size() ? curve[quantile] : Json();
    };
    row.insert(row.end(), {member(head, "r"), member(head["values"], "stable_rank"),
                           member(at("keys"), "delta"), member(at("keys"), "delta_r"),
                           member(at("keys"), "clusters"), member(at("values"), "clusters")});
    table.add(std::move(row));
  });
  return "\n" + table.text(columns);
}

std::string attention_text(const Json& sequence, std::size_t columns) {
  Table table = head_table({{"rows", Align::kRight, 6},
                            {"entropy", Align::kRight, 9},
                            {"max logit", Align::kRight, 9},
                            {"zero fp16", Align::kRight, 10, 1},
                            {"<= 1% of max", Align::kRight, 12, 2},
                            {"top 1 %", Align::kRight, 9, 4},
                            {"top 10 %", Align::kRight, 9},
                            {"top 50 %", Align::kRight, 9, 3}});
  for_each_head(sequence, [&](std::vector<std::string> row, const Json& head) {
    const Json& attention = head["attention"];
    if (attention.is_null()) {
      row.push_back(head["attention_missing"].get<std::string>());
      table.add_spanning(std::move(row));
      return;
    }
    const auto percent = [](const Json& fraction) {
      return fmt::format("{:.1f} %", 100.0 * fraction.get<double>());
    };
    const auto mass = [&](int wanted) {
      for (const Json& entry : attention["top_mass"]) {
        if (entry["percent"] == wanted) return percent(entry["per_query"]);
      }
      return std::string("-");
    };
    const Json& sparsity = attention["sparsity"];
    std::string below = "-";
    for (const Json& entry : sparsity["share_of_largest_at_most"]) {
      if (entry["threshold"] == 0.01) below = percent(entry["fraction"]);
    }
    row.insert(row.end(), {number(attention["rows"]), number(attention["entropy_nats"]),
                           number(attention["largest_logit"]), percent(sparsity["zero_in_fp16"]),
                           below, mass(1), mass(10), mass(50)});
    table.add(std::move(row));
  });
  return "\n" + table.text(columns);
}

// m' of keys and values, a column per delta quantile.
std::string clusters_text(const Json& sequence, const Json& quantiles, std::size_t columns) {
  if (quantiles.empty()) return "";
  std::vector<Column> further = {{"of n", Align::kRight, 7}};
  for (const Json& quantile : quantiles)
    further.push_back({number(quantile), Align::kRight, 12, static_cast<int>(further.size())});
  Table table = head_table(std::move(further));
  for_each_head(sequence, [&](std::vector<std::string> row, const Json& head) {
    row.push_back(number(head["clustering_tokens"]));
    for (std::size_t k = 0; k < quantiles.size(); ++k) {
      row.push_back(number(head["keys"]["clustering"][k]["clusters"]) + " / " +
                    number(head["values"]["clustering"][k]["clusters"]));
    }
    table.add(std::move(row));
  });
  return "\n" +
         paragraph("clusters m'(delta) of keys / values, delta = quantile of pairwise distances",
                   columns) +
         table.text(columns);
}

// Covering radius in units of the rms norm, so that keys and values compare.
std::string covering_text(const Json& sequence, std::size_t columns) {
  constexpr long long kShown[] = {1, 4, 16, 65, 273, 1024};
  const auto nearest = [](const Json& curve, long long k) -> const Json* {
    const Json* found = nullptr;
    for (const Json& point : curve) {
      if (point[0].get<long long>() <= k) found = &point;
    }
    return found;
  };
  std::vector<Column> further;
  for (const long long k : kShown) {
    const int drop = 1 + static_cast<int>(further.size());
    further.push_back({fmt::format("k <= {}", k), Align::kRight, 13, drop});
  }
  Table table = head_table(std::move(further));
  for_each_head(sequence, [&](std::vector<std::string> row, const Json& head) {
    for (const long long k : kShown) {
      std::string cell;
      for (const char* of : {"keys", "values"}) {
        const Json* point = nearest(head[of]["covering_radius"], k);
        const double rms = head[of]["norms"]["rms"].get<double>();
        if (!cell.empty()) cell += ", ";
        const double share = point == nullptr ? std::nan("") : (*point)[1].get<double>() / rms;
        cell += std::isfinite(share) ? fmt::format("{:.3f}", share) : "-";
      }
      row.push_back(std::move(cell));
    }
    table.add(std::move(row));
  });
  return "\n" +
         paragraph("covering radius / rms norm of keys, values with k farthest-first centres",
                   columns) +
         table.text(columns);
}

}  // namespace

void print_inspection(const Json& document) {
  const std::size_t columns = terminal_columns(stdout);
  print_text("{}\nmodel {} ({} layers), written by {}, fingerprint {}\n",
             document["path"].get<std::string>(), document["model"].get<std::string>(),
             number(document["n_layers"]), document["producer"].get<std::string>(),
             document["fingerprint"].get<std::string>());
  const Json& quantiles = document["options"]["delta_quantiles"];
  for (const Json& sequence : document["sequences"]) {
    print_text("\nsequence {}", sequence["sequence"].get<std::string>());
    const std::string description = sequence["description"].get<std::string>();
    if (!description.empty()) print_text(": {}", description);
    if (!sequence["prompt_tokens"].is_null()) {
      print_text(" (prompt of {})", number(sequence["prompt_tokens"]));
    }
    print_text("\n\n");
    print_block(layers_text(sequence, columns));
    const std::size_t shown = headline(quantiles);
    print_block(norms_text(sequence, shown, columns));
    if (!quantiles.empty()) {
      print_block(paragraph(
          fmt::format("(r = max ||scale q|| over stored rows; srank = ||V||_F^2 / ||V||_op^2; "
                      "delta at quantile {} of distances between keys, m' of values at theirs)",
                      number(quantiles[shown])),
          columns));
    }
    print_block(attention_text(sequence, columns));
    print_block(paragraph(
        "(means over the last rows and the query heads of a KV head; entropy in nats; parts of "
        "the visible tokens below a threshold; mass of the top tokens of each row)",
        columns));
    print_block(clusters_text(sequence, quantiles, columns) + covering_text(sequence, columns));
  }
}

}  // namespace kvbench
