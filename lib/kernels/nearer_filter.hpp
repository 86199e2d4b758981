// Which of some centres can be nearer to a point than a distance that it knows: products in single
// precision with a rigorous error band, compared while they are in registers. It decides nothing by
// itself; what it leaves in doubt, canonical distances decide.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/distance_filter.hpp"
#include "numerics/aligned.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// Points in tiles, dimension-major, and centres that they are compared with. Asked by several
// threads at once, as long as no centre is added.
class NearerFilter {
 public:
  static constexpr Index kWidth = 32;  // points of a tile

  // Rows [first, rows) of `points` [rows, d].
  NearerFilter(ConstMatrix points, Index first);

  // Where it is not, it may not be asked.
  bool usable() const { return scale_.usable(); }
  Index tiles() const { return (count_ + kWidth - 1) / kWidth; }

  void forget();        // all centres
  void add(Index row);  // a centre
  void finish();        // after the last one that is added

  struct Pair {
    std::int32_t point = 0;   // in the tile
    std::int32_t center = 0;  // in the order of add()
    float score = 0.0F;
  };

  // Pairs of the tile's points with centres, of a point in the order of the centres: all that can
  // be as near as any other of the centres and nearer than the squared distances `known`, which are
  // canonical; [kWidth], those of unused places do not matter.
  void find_nearer(Index tile, const double* known, std::vector<Pair>& pairs) const;

 private:
  // Limits of a tile's points: the least score that matters, which rises to the best score less the
  // band.
  struct Limits {
    alignas(64) float least[kWidth];
    alignas(64) float band[kWidth];
  };

  Limits limits(Index tile, const double* known) const;
  void find_in_strip(Index tile, Index strip, Limits& limit, std::vector<Pair>& pairs) const;

  void pack(ConstMatrix points, Index tile);

  const FilterScale scale_;
  const Index first_;
  const Index count_;
  const Index d_;
  std::vector<float, LineAllocator<float>> packed_;  // [tiles, d, kWidth], zeros where unused
  std::vector<double> norms_;                        // [tiles * kWidth]
  double longest_ = 0.0;                             // largest of the centres' norms
  std::vector<float> centers_;  // in blocks of some, dimension-major, zeros where unused
  std::vector<float> starts_;   // [centres padded] -||c||^2 / 2, where a score begins
};

}  // namespace kvbench
