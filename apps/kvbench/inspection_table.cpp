#include <fmt/core.h>

#include <cmath>

#include "inspection_document.hpp"

namespace {

constexpr double kHeadlineQuantile = 0.05;

// Four significant digits, or a dash where there is no finite number.
std::string number(const OrderedJson& value) {
  if (!value.is_number()) return "-";
  if (value.is_number_integer()) return fmt::format("{}", value.get<long long>());
  return std::isfinite(value.get<double>()) ? fmt::format("{:.4g}", value.get<double>()) : "-";
}

std::string member(const OrderedJson& object, const char* key) {
  return object.is_object() && object.contains(key) ? number(object[key]) : "-";
}

std::string or_dash(const OrderedJson& value) {
  return value.get<double>() == 0.0 ? "-" : number(value);
}

std::size_t headline(const OrderedJson& quantiles) {
  std::size_t best = 0;
  for (std::size_t k = 1; k < quantiles.size(); ++k) {
    const auto off = [&](std::size_t i) {
      return std::fabs(quantiles[i].get<double>() - kHeadlineQuantile);
    };
    if (off(k) < off(best)) best = k;
  }
  return best;
}

template <class F>
void for_each_head(const OrderedJson& sequence, const F& body) {
  for (const OrderedJson& layer : sequence["layers"]) {
    for (const OrderedJson& head : layer["heads"]) {
      body(fmt::format("{:>5} {:>4}", number(layer["layer"]), number(head["kv_head"])), head);
    }
  }
}

void print_layers(const OrderedJson& sequence, std::FILE* out) {
  fmt::print(out, "{:>5} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>10} {:>7} {:>8} {:>5}\n", "layer",
             "q heads", "KV heads", "n", "q rows", "d / dv", "dtype", "scale", "window", "soft-cap",
             "out");
  for (const OrderedJson& layer : sequence["layers"]) {
    fmt::print(out, "{:>5} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>10} {:>7} {:>8} {:>5}\n",
               number(layer["layer"]), number(layer["query_heads"]), number(layer["kv_heads"]),
               number(layer["tokens"]), number(layer["query_rows"]),
               number(layer["d"]) + " / " + number(layer["dv"]), layer["dtype"].get<std::string>(),
               number(layer["scale"]), or_dash(layer["sliding_window"]),
               or_dash(layer["logit_softcap"]), or_dash(layer["out_rows"]));
  }
}

void print_norms(const OrderedJson& sequence, std::size_t quantile, std::FILE* out) {
  fmt::print(out, "\n{:>5} {:>4} {:>17} {:>17} {:>17} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}\n",
             "layer", "head", "||q|| median, max", "||k|| median, max", "||v|| median, max", "r",
             "srank V", "delta", "delta r", "m' keys", "m' vals");
  for_each_head(sequence, [&](const std::string& place, const OrderedJson& head) {
    fmt::print(out, "{}", place);
    for (const char* of : {"queries", "keys", "values"}) {
      const OrderedJson& norms = head[of]["norms"];
      fmt::print(out, " {:>8} {:>8}", member(norms, "median"), member(norms, "max"));
    }
    const auto at = [&](const char* of) {
      const OrderedJson& curve = head[of]["clustering"];
      return quantile < curve.size() ? curve[quantile] : OrderedJson();
    };
    fmt::print(out, " {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}\n", member(head, "r"),
               member(head["values"], "stable_rank"), member(at("keys"), "delta"),
               member(at("keys"), "delta_r"), member(at("keys"), "clusters"),
               member(at("values"), "clusters"));
  });
}

void print_attention(const OrderedJson& sequence, std::FILE* out) {
  fmt::print(out, "\n{:>5} {:>4} {:>6} {:>9} {:>9} {:>10} {:>12} {:>9} {:>9} {:>9}\n", "layer",
             "head", "rows", "entropy", "max logit", "zero fp16", "<= 1% of max", "top 1 %",
             "top 10 %", "top 50 %");
  for_each_head(sequence, [&](const std::string& place, const OrderedJson& head) {
    const OrderedJson& attention = head["attention"];
    if (attention.is_null()) {
      fmt::print(out, "{} {}\n", place, head["attention_missing"].get<std::string>());
      return;
    }
    const auto percent = [](const OrderedJson& fraction) {
      return fmt::format("{:.1f} %", 100.0 * fraction.get<double>());
    };
    const auto mass = [&](int wanted) {
      for (const OrderedJson& entry : attention["top_mass"]) {
        if (entry["percent"] == wanted) return percent(entry["per_query"]);
      }
      return std::string("-");
    };
    const OrderedJson& sparsity = attention["sparsity"];
    std::string below = "-";
    for (const OrderedJson& entry : sparsity["share_of_largest_at_most"]) {
      if (entry["threshold"] == 0.01) below = percent(entry["fraction"]);
    }
    fmt::print(out, "{} {:>6} {:>9} {:>9} {:>10} {:>12} {:>9} {:>9} {:>9}\n", place,
               number(attention["rows"]), number(attention["entropy_nats"]),
               number(attention["largest_logit"]), percent(sparsity["zero_in_fp16"]), below,
               mass(1), mass(10), mass(50));
  });
}

// m' of keys and values, a column per delta quantile.
void print_clusters(const OrderedJson& sequence, const OrderedJson& quantiles, std::FILE* out) {
  if (quantiles.empty()) return;
  fmt::print(out,
             "\nclusters m'(delta) of keys / values, delta = quantile of pairwise distances\n");
  fmt::print(out, "{:>5} {:>4} {:>7}", "layer", "head", "of n");
  for (const OrderedJson& quantile : quantiles) fmt::print(out, " {:>12}", number(quantile));
  fmt::print(out, "\n");
  for_each_head(sequence, [&](const std::string& place, const OrderedJson& head) {
    fmt::print(out, "{} {:>7}", place, number(head["clustering_tokens"]));
    for (std::size_t k = 0; k < quantiles.size(); ++k) {
      fmt::print(out, " {:>12}",
                 number(head["keys"]["clustering"][k]["clusters"]) + " / " +
                     number(head["values"]["clustering"][k]["clusters"]));
    }
    fmt::print(out, "\n");
  });
}

// Covering radius in units of the rms norm, so that keys and values compare.
void print_covering(const OrderedJson& sequence, std::FILE* out) {
  constexpr long long kShown[] = {1, 4, 16, 65, 273, 1024};
  const auto nearest = [](const OrderedJson& curve, long long k) -> const OrderedJson* {
    const OrderedJson* found = nullptr;
    for (const OrderedJson& point : curve) {
      if (point[0].get<long long>() <= k) found = &point;
    }
    return found;
  };
  fmt::print(out, "\ncovering radius / rms norm of keys, values with k farthest-first centres\n");
  fmt::print(out, "{:>5} {:>4}", "layer", "head");
  for (const long long k : kShown) fmt::print(out, " {:>13}", fmt::format("k <= {}", k));
  fmt::print(out, "\n");
  for_each_head(sequence, [&](const std::string& place, const OrderedJson& head) {
    fmt::print(out, "{}", place);
    for (const long long k : kShown) {
      std::string cell;
      for (const char* of : {"keys", "values"}) {
        const OrderedJson* point = nearest(head[of]["covering_radius"], k);
        const double rms = head[of]["norms"]["rms"].get<double>();
        if (!cell.empty()) cell += ", ";
        const double share = point == nullptr ? std::nan("") : (*point)[1].get<double>() / rms;
        cell += std::isfinite(share) ? fmt::format("{:.3f}", share) : "-";
      }
      fmt::print(out, " {:>13}", cell);
    }
    fmt::print(out, "\n");
  });
}

}  // namespace

void print_inspection(const OrderedJson& document, std::FILE* out) {
  fmt::print(out, "{}\nmodel {} ({} layers), written by {}, fingerprint {}\n",
             document["path"].get<std::string>(), document["model"].get<std::string>(),
             number(document["n_layers"]), document["producer"].get<std::string>(),
             document["fingerprint"].get<std::string>());
  const OrderedJson& quantiles = document["options"]["delta_quantiles"];
  for (const OrderedJson& sequence : document["sequences"]) {
    fmt::print(out, "\nsequence {}", sequence["sequence"].get<std::string>());
    const std::string description = sequence["description"].get<std::string>();
    if (!description.empty()) fmt::print(out, ": {}", description);
    if (!sequence["prompt_tokens"].is_null()) {
      fmt::print(out, " (prompt of {})", number(sequence["prompt_tokens"]));
    }
    fmt::print(out, "\n\n");
    print_layers(sequence, out);
    const std::size_t shown = headline(quantiles);
    print_norms(sequence, shown, out);
    if (!quantiles.empty()) {
      fmt::print(out,
                 "(r = max ||scale q|| over stored rows; srank = ||V||_F^2 / ||V||_op^2; delta at "
                 "quantile {} of\n distances between keys, m' of values at theirs)\n",
                 number(quantiles[shown]));
    }
    print_attention(sequence, out);
    fmt::print(out,
               "(means over the last rows and the query heads of a KV head; entropy in nats; "
               "parts of the visible tokens\n below a threshold; mass of the top tokens of each "
               "row)\n");
    print_clusters(sequence, quantiles, out);
    print_covering(sequence, out);
  }
}
