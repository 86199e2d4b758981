#include "compare/compare_files.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "compare/compared_results.hpp"
#include "results/layer_record.hpp"
#include "results/read_results.hpp"

namespace kvbench {
namespace {

// The records of one file.
struct Records {
  ComparedResults cells;
  ComparedResults layers;
};

}  // namespace

CompareRules rules_of(const CompareRules& rules, bool layers) {
  CompareRules out = rules;
  std::erase_if(out.metrics,
                [&](const std::string& path) { return is_layer_metric(path) != layers; });
  return out;
}

ComparedFiles compare_files(
    const std::string& path_a, const std::string& path_b, const CompareRules& rules,
    ErrorList& errors,
    const std::function<void(const Json& rest, const std::string& path)>& read_one) {
  const CompareRules of_cells = rules_of(rules, false);
  const CompareRules of_layers = rules_of(rules, true);
  const auto metrics_of = [&](const CompareRules& of) {
    return errors.none() ? of.all_metrics() : std::vector<std::string>();
  };
  const auto read = [&](const std::string& path) {
    Records file{ComparedResults(metrics_of(of_cells), path),
                 ComparedResults(metrics_of(of_layers), path, "layers")};
    errors.gather([&] {
      const Json rest =
          read_results(path, {.cell = [&](Json&& cell) { file.cells.add(cell); },
                              .layer = [&](Json&& layer) { file.layers.add(layer); }});
      read_one(rest, path);
    });
    return file;
  };
  const Records a = read(path_a);
  const Records b = read(path_b);
  errors.throw_if_any();
  ComparedFiles compared;
  if (!of_cells.metrics.empty()) compared.cells = compare_results(a.cells, b.cells, of_cells);
  if (of_layers.metrics.empty()) return compared;
  const bool in_a = a.layers.size() > 0;
  const bool in_b = b.layers.size() > 0;
  if (in_a && in_b) {
    compared.layers = compare_results(a.layers, b.layers, of_layers);
  } else if (!compared.cells) {
    throw InputError(
        fmt::format("{}: has no records of whole layers to compare; run the sweep on a dump with "
                    "the output projection (wo) or evidence",
                    in_a ? path_b : path_a));
  } else if (in_a || in_b) {
    compared.layers_only_in = in_a ? path_a : path_b;
  }
  return compared;
}

}  // namespace kvbench
