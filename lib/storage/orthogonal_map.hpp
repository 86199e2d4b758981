// Rotations of vectors: what a codec does before it rounds, and undoes after.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/codec.hpp"
#include "storage/dense_map.hpp"

namespace kvbench {

enum class Rotation {
  kNone,
  kHadamard,       // the Hadamard matrix
  kHadamardSigns,  // the same after fair signs of the channels
  kHaar,           // Q of a normal matrix
};

// An orthogonal matrix M [d, d]. Its random numbers are drawn for `purpose` with the context's seed
// and stream.
class OrthogonalMap {
 public:
  OrthogonalMap(Rotation rotation, const CodecContext& context, std::string_view purpose);

  // Rows of `out` [n, d] = M x and M^T x of rows x of `vectors` [n, d]; out is not vectors.
  void apply(ConstMatrix vectors, MutableMatrix out) const;
  void undo(ConstMatrix vectors, MutableMatrix out) const;
  // Bytes of a Haar matrix in single precision; signs take a bit each.
  Index bytes() const;

 private:
  Rotation rotation_;
  Index d_;
  std::optional<DenseMap> haar_;
  std::vector<double> signs_;
};

// The matrix of kHaar.
DenseMap haar_map(const CodecContext& context, std::string_view purpose);

// Why vectors of `width` numbers cannot be rotated so: a Hadamard matrix needs a power of two.
std::optional<std::string> cannot_rotate(Rotation rotation, Index width, const char* remedy);

}  // namespace kvbench
