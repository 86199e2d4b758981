#include "output/cache_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "output/log.hpp"
#include "output/table.hpp"

namespace kvbench {
namespace {

Json head_document(const KeptHead& head, const KeptRows& kept) {
  std::set<std::int32_t> tokens;
  Json weights = nullptr;  // smallest and largest of either sum
  Index for_some_rows = 0;
  Index for_one_head = 0;
  for (const KeptRow& row : kept.rows) {
    if (row.token >= 0) tokens.insert(row.token);
    const auto [least, most] = std::minmax(row.w_num, row.w_den);
    weights = weights.is_null() ? Json{least, most}
                                : Json{std::min(least, weights[0].get<double>()),
                                       std::max(most, weights[1].get<double>())};
    for_some_rows += row.begin > kept.prompt || row.end != KeptRow::kToTheEnd ? 1 : 0;
    for_one_head += row.head >= 0 ? 1 : 0;
  }
  Json out = {{"sequence", head.sequence},
              {"layer", head.layer},
              {"kv_head", head.kv_head},
              {"prompt_tokens", head.prompt},
              {"tokens", head.tokens ? Json(*head.tokens) : Json(nullptr)},
              {"rows", head.rows},
              {"distinct_tokens", tokens.size()},
              {"weights", weights},
              {"rows_kept_for_a_while", for_some_rows},
              {"rows_of_one_query_head", for_one_head},
              {"own_keys", head.d},
              {"own_values", head.dv},
              {"decode", kept.appends ? "append" : "given"},
              {"reads_future", kept.reads_future}};
  if (kept.bytes) out["declared_bytes"] = *kept.bytes;
  return out;
}

std::string or_dash(const Json& value) {
  return value.is_null() || value == 0 ? "-" : exact_line(value);
}

std::string weights_text(const Json& weights) {
  if (weights.is_null()) return "-";
  return fmt::format("{:.4g} to {:.4g}", weights[0].get<double>(), weights[1].get<double>());
}

}  // namespace

Json cache_document(const KeptCache& cache) {
  Json heads = Json::array();
  for (const KeptHead& head : cache.heads) {
    heads.push_back(head_document(head, cache.read({head.sequence, head.layer, head.kv_head})));
  }
  return {{"kind", "kvbench-cache"},
          {"path", cache.path},
          {"method", cache.method},
          {"fingerprint", cache.fingerprint},
          {"heads", std::move(heads)}};
}

void print_cache(const Json& document) {
  print_text("{}: a cache file of {}, fingerprint {}\n\n", document["path"].get<std::string>(),
             document["method"].get<std::string>(), document["fingerprint"].get<std::string>());
  Table table({{"sequence", Align::kLeft, 8},
               {"layer", Align::kRight, 5},
               {"head", Align::kRight, 4},
               {"prompt", Align::kRight, 6},
               {"rows", Align::kRight, 5},
               {"tokens", Align::kRight, 6},
               {"weights", Align::kRight, 8},
               {"for a while", Align::kRight, 5},
               {"one head", Align::kRight, 5},
               {"own d", Align::kRight, 5},
               {"own dv", Align::kRight, 6},
               {"decode", Align::kRight, 6}},
              " ");
  for (const Json& head : document["heads"]) {
    table.add({head["sequence"].get<std::string>(), exact_line(head["layer"]),
               exact_line(head["kv_head"]), exact_line(head["prompt_tokens"]),
               exact_line(head["rows"]), exact_line(head["distinct_tokens"]),
               weights_text(head["weights"]), or_dash(head["rows_kept_for_a_while"]),
               or_dash(head["rows_of_one_query_head"]), or_dash(head["own_keys"]),
               or_dash(head["own_values"]), head["decode"].get<std::string>()});
  }
  print_block(table.text(terminal_columns(stdout)));
}

}  // namespace kvbench
