#include "output/stored_outputs_table.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "output/log.hpp"

namespace kvbench {
namespace {

const char* verdict(const OutputDifference& layer) {
  if (layer.agrees()) return "";
  return layer.excess > 1.0 ? "  above tolerance" : "  within rounding, of another scale";
}

}  // namespace

StoredOutputs print_stored_outputs(const Dump& dump, std::optional<double> tolerance) {
  bool is_first = true;
  return compare_stored_outputs(
      dump, tolerance,
      [&](const std::string& sequence, int layer, Index rows, const OutputDifference& difference) {
        if (is_first) {
          print_text("{:<24} {:>5} {:>5}  {}\n", "sequence", "layer", "rows", "difference");
        }
        is_first = false;
        print_text("{:<24} {:>5} {:>5}  {:.3e}{}\n", sequence, layer, rows, difference.most,
                   verdict(difference));
      });
}

void log_uncompared(const StoredOutputs& found, const std::string& dump) {
  constexpr std::size_t kShown = 20;
  const std::vector<std::string>& layers = found.without_out;
  if (layers.empty()) return;
  const auto end = layers.begin() + std::min(layers.size(), kShown);
  log_text("{}: {} of {} layers have no out and were not compared (sequence/layer): {}{}\n", dump,
           layers.size(), layers.size() + found.compared, fmt::join(layers.begin(), end, ", "),
           layers.size() > kShown ? ", .." : "");
}

}  // namespace kvbench
