// Counts what a decoder reads to answer the scored rows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.hpp"
#include "replay/cell_result.hpp"
#include "sketch/sketch.hpp"
#include "storage/cache_view.hpp"
#include "storage/storage.hpp"

namespace kvbench {

class TrafficMeter {
 public:
  // `layout`: what vectors take; must live as long. `keeps_all`: every token, or Sketch::held,
  // stays, and an answer reads the sketch's rows and its lookup alone. Otherwise it reads all that
  // is held.
  TrafficMeter(const StreamShape& shape, int element_bytes, const StorageLayout& layout,
               bool keeps_all)
      : shape_(shape), element_bytes_(element_bytes), layout_(layout), keeps_all_(keeps_all) {}

  // The sketch that answers scored row `row`, and the cache that the answer reads. `values_summed`:
  // vectors in its numerator, by query head of the group.
  void observe(const Sketch& sketch, Index row, const std::vector<Index>& values_summed,
               const CacheView& cache);

  // Report of all rows observed; zeros without one.
  TrafficReport report() const;

 private:
  struct Read {
    Index tokens = 0;
    Index bytes = 0;
  };
  Read read_by(const Sketch& sketch, Index visible, const CacheView& cache);
  Read read_of_all(const Sketch& sketch, const CacheView& cache);

  StreamShape shape_;
  int element_bytes_;
  const StorageLayout& layout_;
  bool keeps_all_;
  Index rows_ = 0;
  double tokens_ = 0.0;  // sums over rows
  double bytes_ = 0.0;
  double fraction_ = 0.0;
  double density_ = 0.0;
  TrafficReport most_;                 // its maxima
  std::vector<std::uint8_t> is_read_;  // [n] by token: bit 0 its key, bit 1 its value
};

}  // namespace kvbench
