#include "run/stored_outputs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench {

double relative_difference(const double* z, const double* out, Index count) {
  double difference = 0.0;
  double norm = 0.0;
  for (Index c = 0; c < count; ++c) {
    difference += (z[c] - out[c]) * (z[c] - out[c]);
    norm += out[c] * out[c];
  }
  if (norm == 0.0) return difference == 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
  return std::sqrt(difference / norm);
}

double larger_difference(double most, double difference) {
  return std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                : std::max(most, difference);
}

double largest_output_difference(const Dump& dump, const std::string& sequence,
                                 const LayerInfo& layer, Index rows) {
  double most = 0.0;
  for (int head = 0; head < static_cast<int>(layer.kv_heads); ++head) {
    const std::unique_ptr<StreamData> data = dump.read_stream(sequence, layer.index, head);
    const int heads_per_kv = data->stream.shape.heads_per_kv;
    std::vector<Index> positions(static_cast<std::size_t>(rows));
    std::iota(positions.begin(), positions.end(), layer.tokens - rows);
    const ExactRows exact = cpu_kernels().exact_attention(data->stream, positions);
    for (int g = 0; g < heads_per_kv; ++g) {
      const std::vector<double> out = dump.read_out(sequence, layer.index, head * heads_per_kv + g);
      for (Index r = 0; r < rows; ++r) {
        const double* z = exact.outputs.data() + (r * heads_per_kv + g) * layer.dv;
        const double* stored = out.data() + (layer.out_rows - rows + r) * layer.dv;
        most = larger_difference(most, relative_difference(z, stored, layer.dv));
      }
    }
  }
  return most;
}

void read_through(const Dump& dump, const std::string& sequence, const LayerInfo& layer) {
  for (int head = 0; head < static_cast<int>(layer.kv_heads); ++head) {
    dump.read_stream(sequence, layer.index, head);
  }
}

}  // namespace kvbench
