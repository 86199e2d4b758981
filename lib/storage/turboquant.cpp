// turboquant: a vector is rotated, so that its direction's coordinates are nearly normal, and each
// is rounded to the points of that distribution's best quantiser; the norm is stored next to them.
//
// Sources: TurboQuant, Zandieh et al., arXiv 2504.19874 (forms mse and prod; no code of theirs was
// found), and its port in vllm-project/vllm@06d0369 and @0135d08 (form vllm:
// model_executor/layers/quantization/turboquant/centroids.py,
// v1/attention/ops/triton_turboquant_store.py and .._decode.py).
//   mse:  rho = |x|, u = x / rho, y = M u, codes of y, x^ = rho M^T points.
//         scale one: x^ as above. EDEN's scales (Vargaftik et al., arXiv 2108.08842, and the note
//         of Ben-Basat et al. on TurboQuant, arXiv 2604.18555, whose S = 1 is scale one) store S
//         rho for rho: with c the vector of points, eden has S = <y, c> / |c|^2, the least |x^ -
//         x|, which the note calls biased; eden_unbiased has S = |y|^2 / <y, c>, with which E x^ =
//         x over the rotations. S is computed per vector, and takes no further bytes.
//   prod: mse with a bit less (none: u^ = 0), r = u - u^, gamma = |r|, signs of S r, S normal;
//         x^ = rho (u^ + sqrt(pi / 2) / d gamma S^T signs), whose inner products are unbiased.
//   vllm: keys as mse, M the Hadamard matrix without signs, u = x / (rho + 1e-8), vllm's own
//         points, and the vector of points gets the norm 1 before it is rotated back. Values are
//         not rotated: codes 0 .. 2^b - 1 of a token between its least and largest number, ties to
//         the upper one; scale and minimum are rounded to binary16 after the codes are made.
// rho and gamma are in binary16. Differences from vllm: it computes in single precision; it leaves
// the first two and last two layers of a model as they are (select layers in the sweep); its points
// depend on d in the ninth digit, since their iteration ends at an absolute change, and here they
// are those of d = 1. Compared: of 256 keys and values of layers 0 and 15 of the shipped dump every
// byte is that of vllm's store kernel, run by Triton's interpreter, for 4 and 4, 3 and 4, and 3 and
// 3 bits. (In layer 0 a coordinate of the key of token 760 is exactly 0, a tie.)
#include "storage/turboquant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numbers>
#include <utility>

#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"
#include "storage/bit_stream.hpp"
#include "storage/half.hpp"
#include "storage/lloyd_max.hpp"
#include "storage/orthogonal_map.hpp"
#include "storage/stored_norm.hpp"
#include "storage/vector_rows.hpp"

namespace kvbench {
namespace {

enum class Form { kMse, kProd, kVllm };
enum class Points { kAuto, kGaussian, kBeta };
enum class Scale { kOne, kEden, kEdenUnbiased };

struct Parameters {
  Index bits = 3;
  Form form = Form::kMse;
  std::optional<Rotation> rotation;  // none: auto
  Points codebook = Points::kAuto;
  Index residual = 0;
  Scale scale = Scale::kOne;
};

using Vector = std::vector<double>;

template <std::size_t n>
Vector mirrored(const std::array<double, n>& half) {
  Vector out(half.rbegin(), half.rend());
  for (double& x : out) x = -x;
  out.insert(out.end(), half.begin(), half.end());
  return out;
}

// Points of N(0, 1), computed once.
const Vector& normal_points(int bits) {
  static const std::array points = {
      lloyd_max_points(normal_density(), 1), lloyd_max_points(normal_density(), 2),
      lloyd_max_points(normal_density(), 3), lloyd_max_points(normal_density(), 4)};
  return points[bits - 1];
}

// Points of a coordinate of unit vectors in d dimensions, times sqrt(d); computed once each, as
// cells and threads ask for them.
const Vector& sphere_points(Index d, int bits) {
  static std::mutex mutex;
  static std::map<std::pair<Index, int>, Vector> all;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = all.find({d, bits});
  if (found != all.end()) return found->second;
  return all.emplace(std::pair{d, bits}, lloyd_max_points(sphere_density(d), bits)).first->second;
}

// The codebook for coordinates of unit vectors in d dimensions.
Codebook codebook_of(const Parameters& p, int bits, Index d) {
  Vector points;
  if (p.form == Form::kVllm) {
    points = vllm_points(bits);
  } else if (p.codebook == Points::kBeta) {
    points = sphere_points(d, bits);
  } else {
    points = normal_points(bits);
  }
  for (double& x : points) x /= std::sqrt(static_cast<double>(d));
  return Codebook(std::move(points));
}

Rotation rotation_of(const Parameters& p) {
  if (p.form == Form::kVllm) return Rotation::kHadamard;
  return p.rotation.value_or(Rotation::kHaar);
}

constexpr double kVllmNormFloor = 1e-8;
constexpr double kVllmSquareFloor = 1e-16;

// The codes of a direction.
class RotatedPoints {
 public:
  RotatedPoints(const Parameters& p, int bits, const CodecContext& context)
      : bits_(bits),
        d_(context.width()),
        of_unit_norm_(p.form == Form::kVllm),
        map_(rotation_of(p), context, "storage/rotation"),
        codebook_(codebook_of(p, bits, d_)) {}

  Index bytes() const { return packed_bytes(d_, bits_); }
  Index shared_bytes() const { return map_.bytes() + 4 * std::ssize(codebook_.points()); }
  // Rows of `directions`; each one's codes `stride` bytes behind the last one's.
  void encode(ConstMatrix directions, std::byte* codes, Index stride) const {
    VectorRows y(directions.rows, d_);
    map_.apply(directions, y.all());
    std::vector<std::uint8_t> some(d_);
    for (Index t = 0; t < directions.rows; ++t, codes += stride) {
      codebook_.codes_of(y.row(t), d_, some.data());
      BitWriter out(codes);
      out.put_all(some.data(), d_, bits_);
      out.finish();
    }
  }
  void decode(const std::byte* codes, Index stride, MutableMatrix directions) const {
    VectorRows y(directions.rows, d_);
    std::vector<std::uint8_t> some(d_);
    for (Index t = 0; t < directions.rows; ++t, codes += stride) {
      BitReader in(codes);
      in.get_all(some.data(), d_, bits_);
      double* row = y.row(t);
      for (Index k = 0; k < d_; ++k) row[k] = codebook_.point(some[k]);
      if (of_unit_norm_) make_unit(row);
    }
    map_.undo(y.all(), directions);
  }

 private:
  void make_unit(double* y) const {
    const double size = vector_norm(y, d_);
    const double divisor = std::sqrt(std::fma(size, size, kVllmSquareFloor));
    for (Index k = 0; k < d_; ++k) y[k] /= divisor;
  }

  int bits_;
  Index d_;
  bool of_unit_norm_;
  OrthogonalMap map_;
  Codebook codebook_;
};

// x / (|x| + floor) of every row, all 0 for a zero vector.
void find_directions(ConstMatrix vectors, const double* norms, double floor, MutableMatrix out) {
  for (Index t = 0; t < vectors.rows; ++t) {
    const double* x = vectors.row(t);
    double* u = out.row(t);
    if (norms[t] == 0.0) {
      std::copy_n(x, vectors.cols, u);
      continue;
    }
    // A norm beyond double precision is refused where it is stored.
    const double divisor = norms[t] + floor;
    for (Index k = 0; k < vectors.cols; ++k) u[k] = x[k] / divisor;
  }
}

class TurboQuant : public Codec {
 public:
  TurboQuant(const Parameters& p, const CodecContext& context)
      : d_(context.width()), residual_(p.residual) {}

  Index written(Index held, Index) const override { return std::max<Index>(held - residual_, 0); }
  void encode(ConstMatrix vectors, std::byte* code) const override { encode_all(vectors, code); }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    decode_all(code, vectors);
  }

 protected:
  Index d_;

 private:
  Index residual_;
};

// Codes, norm.
class MeanSquared final : public TurboQuant {
 public:
  MeanSquared(const Parameters& p, const CodecContext& context)
      : TurboQuant(p, context),
        floor_(p.form == Form::kVllm ? kVllmNormFloor : 0.0),
        scale_(p.scale),
        points_(p, static_cast<int>(p.bits), context) {}

  Index bytes() const override { return points_.bytes() + kStoredNormBytes; }
  Index shared_bytes() const override { return points_.shared_bytes(); }
  void encode_all(ConstMatrix vectors, std::byte* codes) const override {
    Vector norms(vectors.rows);
    vector_norms(vectors, norms.data());
    VectorRows directions(vectors.rows, d_);
    find_directions(vectors, norms.data(), floor_, directions.all());
    points_.encode(directions.all(), codes, bytes());
    if (scale_ != Scale::kOne) find_scales(directions.view(), codes, norms);
    for (std::size_t t = 0; t < norms.size(); ++t) put_norm(norms[t], norm_of(codes, t));
  }
  void decode_all(const std::byte* codes, MutableMatrix vectors) const override {
    points_.decode(codes, bytes(), vectors);
    for (Index t = 0; t < vectors.rows; ++t) {
      const double size = get_norm(norm_of(codes, t));
      double* x = vectors.row(t);
      for (Index k = 0; k < d_; ++k) x[k] = size * x[k];
    }
  }

 private:
  // Place of the t-th vector's norm.
  template <class Byte>
  Byte* norm_of(Byte* codes, std::size_t t) const {
    return codes + static_cast<Index>(t) * bytes() + points_.bytes();
  }

  // S times each norm.
  void find_scales(ConstMatrix directions, const std::byte* codes, Vector& norms) const {
    VectorRows coded(directions.rows, d_);
    points_.decode(codes, bytes(), coded.all());
    for (Index t = 0; t < directions.rows; ++t) {
      const double* u = directions.row(t);
      const double* c = coded.row(t);
      double uu = 0.0;
      double uc = 0.0;
      double cc = 0.0;
      for (Index k = 0; k < d_; ++k) {
        uu = std::fma(u[k], u[k], uu);
        uc = std::fma(u[k], c[k], uc);
        cc = std::fma(c[k], c[k], cc);
      }
      // A number and its point have the same sign: <y, c> is 0 for a zero vector alone.
      if (uc > 0.0) norms[t] *= scale_ == Scale::kEden ? uc / cc : uu / uc;
    }
  }

  double floor_;
  Scale scale_;
  RotatedPoints points_;
};

// Codes of a bit less, signs, norm, the residual's norm.
class Unbiased final : public TurboQuant {
 public:
  Unbiased(const Parameters& p, const CodecContext& context)
      : TurboQuant(p, context),
        signs_(d_, d_,
               [d = d_,
                draw = CounterRng(context.seed, context.stream.id.hash(), "storage/projection")] {
                 return normal_matrix(draw, d, d);
               }) {
    if (p.bits > 1) points_.emplace(p, static_cast<int>(p.bits) - 1, context);
  }

  Index bytes() const override { return norms_at() + 2 * kStoredNormBytes; }
  Index shared_bytes() const override {
    return signs_.bytes() + (points_ ? points_->shared_bytes() : 0);
  }
  void encode_all(ConstMatrix vectors, std::byte* codes) const override {
    Vector norms(vectors.rows);
    vector_norms(vectors, norms.data());
    VectorRows residuals(vectors.rows, d_);
    find_directions(vectors, norms.data(), 0.0, residuals.all());
    if (points_) {
      points_->encode(residuals.all(), codes, bytes());
      VectorRows coded(vectors.rows, d_);
      points_->decode(codes, bytes(), coded.all());
      for (Index t = 0; t < vectors.rows; ++t) {
        for (Index k = 0; k < d_; ++k) residuals.row(t)[k] -= coded.row(t)[k];
      }
    }
    Vector gammas(norms.size());
    vector_norms(residuals.all(), gammas.data());
    VectorRows projected(vectors.rows, d_);
    signs_.apply(residuals.all(), projected.all());
    for (std::size_t t = 0; t < norms.size(); ++t, codes += bytes()) {
      put_norm(norms[t], codes + norms_at());
      put_norm(gammas[t], codes + norms_at() + kStoredNormBytes);
      put_signs<SignBit::kNotBelowZero>(projected.row(t), d_, codes + signs_at());
    }
  }
  void decode_all(const std::byte* codes, MutableMatrix vectors) const override {
    VectorRows directions(vectors.rows, d_);
    if (points_) {
      points_->decode(codes, bytes(), directions.all());
    } else {
      std::fill_n(directions.row(0), vectors.rows * d_, 0.0);
    }
    VectorRows sides(vectors.rows, d_);
    std::vector<std::uint8_t> some(d_);
    for (Index t = 0; t < vectors.rows; ++t) {
      BitReader bits(codes + t * bytes() + signs_at());
      bits.get_all(some.data(), d_, 1);
      double* row = sides.row(t);
      for (std::size_t k = 0; k < some.size(); ++k) row[k] = some[k] != 0 ? 1.0 : -1.0;
    }
    signs_.apply_transposed(sides.all(), vectors);
    for (Index t = 0; t < vectors.rows; ++t, codes += bytes()) {
      const double size = get_norm(codes + norms_at());
      const double gamma = get_norm(codes + norms_at() + kStoredNormBytes);
      const double factor = std::sqrt(std::numbers::pi / 2.0) / d_ * gamma;
      const double* direction = directions.row(t);
      double* x = vectors.row(t);
      for (Index k = 0; k < d_; ++k) x[k] = size * std::fma(factor, x[k], direction[k]);
    }
  }

 private:
  Index signs_at() const { return points_ ? points_->bytes() : 0; }
  Index norms_at() const { return signs_at() + packed_bytes(d_, 1); }

  DenseMap signs_;  // S
  std::optional<RotatedPoints> points_;
};

// Codes, scale, minimum.
class VllmValues final : public TurboQuant {
 public:
  VllmValues(const Parameters& p, const CodecContext& context)
      : TurboQuant(p, context), bits_(static_cast<int>(p.bits)) {}

  Index bytes() const override { return scale_at() + 4; }
  void encode_all(ConstMatrix vectors, std::byte* codes) const override {
    for (Index t = 0; t < vectors.rows; ++t, codes += bytes()) encode_one(vectors.row(t), codes);
  }
  void decode_all(const std::byte* codes, MutableMatrix vectors) const override {
    for (Index t = 0; t < vectors.rows; ++t, codes += bytes()) decode_one(codes, vectors.row(t));
  }

 private:
  Index scale_at() const { return packed_bytes(d_, bits_); }

  void encode_one(const double* x, std::byte* code) const {
    const double low = *std::min_element(x, x + d_);
    const double high = *std::max_element(x, x + d_);
    const double top = (1 << bits_) - 1;
    const double scale = std::max((high - low) / top, kVllmNormFloor);
    put_half(std::min(scale, std::numeric_limits<double>::max()), code + scale_at());
    put_half(low, code + scale_at() + 2);
    BitWriter codes(code);
    for (Index k = 0; k < d_; ++k) {
      const double at = std::floor((x[k] - low) / scale + 0.5);
      codes.put(static_cast<std::uint32_t>(std::clamp(at, 0.0, top)), bits_);
    }
    codes.finish();
  }
  void decode_one(const std::byte* code, double* x) const {
    const double scale = get_half(code + scale_at());
    const double low = get_half(code + scale_at() + 2);
    BitReader codes(code);
    for (Index k = 0; k < d_; ++k) {
      x[k] = std::fma(static_cast<double>(codes.get(bits_)), scale, low);
    }
  }

  int bits_;
};

using Clause = std::optional<std::pair<std::string, std::string>>;

Clause invalid(const Parameters& p) {
  if (p.scale != Scale::kOne && p.form != Form::kMse) {
    return std::pair("scale", "is of form mse; the other forms have their own");
  }
  if (p.form != Form::kVllm) return std::nullopt;
  if (p.bits < 3) {
    return std::pair("bits", fmt::format("must be 3 or 4 with form vllm, got {}", p.bits));
  }
  if (p.rotation) return std::pair("rotation", "is of forms mse and prod; vllm has its own");
  if (p.codebook != Points::kAuto) {
    return std::pair("codebook", "is of forms mse and prod; vllm has its own");
  }
  return std::nullopt;
}

std::optional<std::string> cannot_write(const Parameters& p, const StreamShape& shape,
                                        CacheTensor tensor, Index) {
  const Index width = width_of(shape, tensor);
  if (p.form == Form::kVllm && tensor == CacheTensor::kValues) return std::nullopt;
  if (const auto reason =
          cannot_rotate(rotation_of(p), width,
                        p.form == Form::kVllm ? "choose form mse or prod with rotation haar"
                                              : "choose rotation haar")) {
    return reason;
  }
  if (p.codebook != Points::kBeta || width >= 3) return std::nullopt;
  return fmt::format("codebook beta needs vectors of 3 numbers, they have {}; choose gaussian",
                     width);
}

}  // namespace

std::vector<double> vllm_points(int bits) {
  constexpr std::array kOf3 = {0.24498359250250504, 0.7556454989634354, 1.3431800020335027,
                               2.150349538993173};
  constexpr std::array kOf4 = {0.1284276607427624, 0.38813779089462724, 0.6568799185298694,
                               0.9424482432760116, 1.2562575696718017,  1.6178817595771529,
                               2.0684471186825486, 2.730922218773509};
  return bits == 3 ? mirrored(kOf3) : mirrored(kOf4);
}

CodecDescription describe_codec_turboquant() {
  TypedCodec<Parameters> c;
  using P = Parameters;
  c.id = "turboquant";
  c.title = "coordinates of the rotated direction rounded to the best points, and the norm";
  c.source = "TurboQuant (Zandieh et al.), and vllm's port";
  c.bits = "b + 16/d; prod: b + 32/d; values of vllm: b + 32/dv";
  c.parameters = {
      field("bits", &P::bits, "bits per number; vllm: 3 or 4").at_least(1).at_most(4),
      field("form", &P::form, {{"mse", Form::kMse}, {"prod", Form::kProd}, {"vllm", Form::kVllm}},
            "mse: least squared error; prod: unbiased inner products; vllm: as in vllm's code"),
      field("rotation", &P::rotation,
            {{"auto", std::nullopt},
             {"haar", Rotation::kHaar},
             {"hadamard_signs", Rotation::kHadamardSigns}},
            "auto: haar, and with form vllm a Hadamard matrix without signs"),
      field("codebook", &P::codebook,
            {{"auto", Points::kAuto}, {"gaussian", Points::kGaussian}, {"beta", Points::kBeta}},
            "points for coordinates: normal ones, or exactly of a unit vector; auto: gaussian, and "
            "with form vllm its own table"),
      field("residual", &P::residual, "newest tokens, which are held unquantised"),
      field("scale", &P::scale,
            {{"one", Scale::kOne}, {"eden", Scale::kEden}, {"eden_unbiased", Scale::kEdenUnbiased}},
            "factor of the stored norm: 1; EDEN's of least squared error; EDEN's of no bias")
          .later()};
  c.randomised = [](const P& p) { return p.form != Form::kVllm; };
  c.validate = invalid;
  c.skip_reason = cannot_write;
  c.create = [](const P& p, const CodecContext& context) -> std::unique_ptr<Codec> {
    if (p.form == Form::kProd) return std::make_unique<Unbiased>(p, context);
    if (p.form == Form::kVllm && context.tensor == CacheTensor::kValues) {
      return std::make_unique<VllmValues>(p, context);
    }
    return std::make_unique<MeanSquared>(p, context);
  };
  return c;
}

}  // namespace kvbench
