#include "algorithms/mechanisms/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench {

namespace {

void share(double* x, std::size_t count, double sink, const char* what) {
  for (std::size_t j = 0; j < count; ++j) {
    if (!std::isfinite(x[j])) throw CellError(std::string(what) + " overflow");
  }
  const double max = std::max(sink, *std::max_element(x, x + count));
  double sum = 0.0;
  for (std::size_t j = 0; j < count; ++j) sum += x[j] = canonical_exp(x[j] - max);
  sum += canonical_exp(sink - max);
  for (std::size_t j = 0; j < count; ++j) x[j] /= sum;
}

}  // namespace

void softmax(double* x, std::size_t count, const char* what) { share(x, count, kNoSink, what); }

void softmax_with_sink(double* x, std::size_t count, double sink) {
  share(x, count, sink, "logits");
}

}  // namespace kvbench
