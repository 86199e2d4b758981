// Rows of methods that keep every token and choose by the query what a row reads.
#include "conformance/row_parts.hpp"

namespace kvbench::test {
namespace {

// Methods that keep all and read some hold no weights: what a row reads is not stored by it.
Conformance reading_row(const std::string& id, const std::vector<Given>& points) {
  Conformance row;
  row.id = id;
  row.looks_up = true;
  row.computes_weights = true;
  for (const Given& given : points) row.points.push_back({given, nullptr, false, nullptr});
  return row;
}

Conformance quest_row() {
  Conformance row = reading_row(
      "quest", {{{"budget", integer(8)}, {"page", integer(3)}, {"semantics", word("kernel")}},
                {{"budget", integer(8)}, {"page", integer(3)}, {"share", word("group")}}});
  row.general_values = {{"page", integer(3)}};
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{{{"budget", integer(tokens)}, {"page", integer(1)}},
                              {{"budget", integer(2 * tokens)}, {"semantics", word("kernel")}}};
  };
  return row;
}

Conformance sparq_row() {
  const Given rank{{"rank", integer(2)}};
  Given read = rank;
  read.insert(read.end(), {{"k", integer(6)}, {"recent", integer(2)}});
  Given plain = read;
  plain.emplace_back("mean_value", Value{false});
  Conformance row = reading_row("sparq", {read, plain});
  row.general_values = {{"k", integer(6)}, {"recent", integer(2)}};
  row.exact_points = [rank](Index tokens) {
    Given all = rank;
    all.emplace_back("k", integer(tokens));
    return std::vector<Given>{all};
  };
  return row;
}

Conformance hsa_row() {
  const Given few{{"budget", integer(7)}, {"rank", integer(2)}};
  Given pages = few;
  pages.emplace_back("page", integer(3));
  Given keys = few;
  keys.emplace_back("page", integer(1));
  Conformance row = reading_row("hsa", {pages, keys});
  row.general_values = {{"rank", integer(2)}};
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{{{"budget", integer(tokens)}, {"rank", integer(1)}}};
  };
  return row;
}

Conformance loki_row() {
  const Given few{{"budget", integer(7)}, {"rank", integer(2)}};
  Given labels = few;
  labels.insert(labels.end(), {{"basis", word("channels")}, {"label_bits", integer(4)}});
  Conformance row = reading_row("loki", {few, labels});
  row.general_values = {{"rank", integer(2)}, {"label_bits", integer(16)}};
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{{{"budget", integer(tokens)}, {"rank", integer(1)}}};
  };
  return row;
}

Conformance magicpig_row() {
  const Given few{{"bits", integer(3)}, {"tables", integer(8)}, {"sinks", integer(2)}};
  Given points = few;
  points.emplace_back("recent", integer(3));
  Given one = points;
  one.emplace_back("least", integer(1));
  Conformance row = reading_row("magicpig", {points, one});
  row.general_values = {{"tables", integer(8)}, {"recent", integer(3)}};
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{{{"recent", integer(tokens)}},
                              {{"bits", integer(0)}, {"epsilon", Value{0.0}}}};
  };
  return row;
}

Conformance vattention_row() {
  const Given few{{"sinks", integer(2)}, {"recent", integer(3)}, {"top", integer(4)}};
  Given loose = few;
  loose.insert(loose.end(), {{"epsilon", Value{1.0}}, {"delta", Value{0.5}}});
  Conformance row = reading_row("vattention", {few, loose});
  row.general_values = {
      {"sinks", integer(2)}, {"recent", integer(3)}, {"top", integer(4)}, {"epsilon", Value{0.9}}};
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{{{"recent", integer(tokens)}},
                              {{"sinks", integer(2)},
                               {"recent", integer(2)},
                               {"top", integer(2)},
                               {"epsilon", Value{1e-12}}}};
  };
  return row;
}

Conformance hashing_row(const std::string& id, const Given& rest) {
  Given few{{"bits", integer(3)}, {"block", integer(7)}, {"samples", integer(5)}};
  few.insert(few.end(), rest.begin(), rest.end());
  Conformance row = reading_row(id, {few});
  row.general_values = few;
  row.exact_points = [](Index tokens) { return std::vector<Given>{{{"block", integer(tokens)}}}; };
  return row;
}

Conformance blasst_row() {
  const Given few{{"threshold", Value{0.5}}, {"block", integer(3)}};
  Given group = few;
  group.emplace_back("share", word("group"));
  Given length{{"threshold", Value{8.0}}, {"block", integer(3)}, {"scaling", word("length")}};
  Conformance row = reading_row("blasst", {few, group, length});
  row.general_values = {{"threshold", Value{0.5}}, {"block", integer(3)}};
  row.exact_points = [](Index) { return std::vector<Given>{{{"threshold", Value{1e-300}}}}; };
  return row;
}

}  // namespace

std::vector<Conformance> reading_rows() {
  return {quest_row(),
          sparq_row(),
          hsa_row(),
          loki_row(),
          magicpig_row(),
          vattention_row(),
          hashing_row("hyperattention", {{"exact_below", integer(0)}}),
          hashing_row("kdeformer", {}),
          blasst_row()};
}

}  // namespace kvbench::test
