// qjl: of a key the signs of m random projections and its norm; channels that are large in a group
// of tokens have signs and a norm of their own.
//
// Source: QJL, Zandieh et al., arXiv 2406.03482, and amirzandieh/QJL@421d61c
// (models/llama3_utils_qjl.py, models/llama3_qjl.py, qjl_kernel/csrc/qjl_{quant,score}_kernel.cu).
//   S: m x d, rows of Haar matrices times sqrt(d), or normal. The channels of largest
//   norm over a group of tokens are outliers o, k_o is k on them and k_i on the others.
//   b_i = signs of S k_i (a product of 0 counts as negative), b_o = signs of the first m_o rows
//   S_o k_o; stored next to |k| and |k_o| in binary16.
//   k^ = sqrt(pi / 2) / m sqrt(|k|^2 - |k_o|^2) mask_i S^T b_i
//      + sqrt(pi / 2) / m_o |k_o| mask_o S_o^T b_o,
//   whose inner product with a query is the score that its kernel computes from q's projections.
// As in that code a token is appended, then every `buffer` tokens are sketched, then the row is
// answered. Its values are those of kivi with 2 bits, residual `buffer` and span prompt. With
// normal S and no outliers k^ is unbiased; with Haar matrices, the release's choice, it is
// 1 + 1 / (4 d) times too long. Differences: the release projects in single or half precision; its
// initial layers have other m and outliers (select layers in the sweep). Compared with its Python
// in double precision and the same S: on 1024 keys of layers 0, 1 and 15 of the shipped dump all
// outliers and signs are equal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"
#include "storage/bit_stream.hpp"
#include "storage/codec.hpp"
#include "storage/dense_map.hpp"
#include "storage/little_endian.hpp"
#include "storage/stored_norm.hpp"
#include "storage/vector_rows.hpp"

namespace kvbench {
namespace {

enum class Projection { kOrthogonal, kGaussian };

struct Parameters {
  Index bits = 256;
  Index outliers = 8;
  Index outlier_bits = 256;
  Index group = 32;
  Index buffer = 128;
  Projection projection = Projection::kOrthogonal;
};

using Vector = std::vector<double>;

Vector projection_of(const Parameters& p, const CounterRng& draw, Index d) {
  if (p.projection == Projection::kGaussian) return normal_matrix(draw, p.bits, d);
  Vector s = stacked_haar_matrices(draw, p.bits, d);
  for (double& x : s) x *= std::sqrt(static_cast<double>(d));
  return s;
}

// A group: outliers' channels; then of each token |k|, |k_o|, b_i, b_o. Without outliers there are
// no |k_o| and b_o.
class Qjl final : public Codec {
 public:
  Qjl(const Parameters& p, const CodecContext& context)
      : p_(p),
        d_(context.width()),
        outlier_bits_(p.outliers > 0 ? p.outlier_bits : 0),
        index_bytes_(d_ <= 256 ? 1 : 2),
        s_(p.bits, d_,
           [p, d = d_,
            draw = CounterRng(context.seed, context.stream.id.hash(), "storage/projection")] {
             return projection_of(p, draw, d);
           }) {}

  Index group() const override { return p_.group; }
  Index bytes() const override { return p_.outliers * index_bytes_ + p_.group * token_bytes(); }
  Index shared_bytes() const override { return s_.bytes(); }
  Index written(Index held, Index) const override { return held / p_.buffer * p_.buffer; }

  void encode(ConstMatrix vectors, std::byte* code) const override {
    const Channels of = channels_of(vectors);
    for (const Index channel : of.outliers) {
      put_bytes(static_cast<std::uint16_t>(channel), index_bytes_, code);
      code += index_bytes_;
    }
    put_norms(vectors, of.outliers, code);
    put_signs(vectors, of.inner, p_.bits, code + signs_at());
    if (p_.outliers > 0) {
      put_signs(vectors, of.outliers, outlier_bits_, code + signs_at() + packed_bytes(p_.bits, 1));
    }
  }

  void decode(const std::byte* code, MutableMatrix vectors) const override {
    std::vector<Index> outliers;
    for (Index i = 0; i < p_.outliers; ++i) {
      outliers.push_back(get_bytes(index_bytes_, code));
      code += index_bytes_;
    }
    Vector inner;
    Vector outer;
    for (Index t = 0; t < p_.group; ++t) {
      const std::byte* norms = code + t * token_bytes();
      const double size = get_norm(norms);
      outer.push_back(p_.outliers > 0 ? get_norm(norms + kStoredNormBytes) : 0.0);
      // Norm of the inner channels, from the norms as stored; |k_o| may be rounded above |k|.
      inner.push_back(std::sqrt(std::max(0.0, (size - outer.back()) * (size + outer.back()))));
    }
    code += signs_at();
    s_.apply_transposed(sides_of(p_.bits, code).view(), vectors);
    scale(inner, p_.bits, vectors);
    if (p_.outliers == 0) return;
    VectorRows estimates(p_.group, p_.outliers);
    s_.apply_transposed(sides_of(outlier_bits_, code + packed_bytes(p_.bits, 1)).view(), outliers,
                        estimates.all());
    scale(outer, outlier_bits_, estimates.all());
    for (Index t = 0; t < p_.group; ++t) {
      const double* from = estimates.row(t);
      for (const Index channel : outliers) vectors(t, channel) = *from++;
    }
  }

 private:
  Index token_bytes() const { return signs_at() + packed_bytes(p_.bits + outlier_bits_, 1); }
  Index signs_at() const { return kStoredNormBytes * (p_.outliers > 0 ? 2 : 1); }

  static void put_bytes(std::uint16_t number, Index bytes, std::byte* out) {
    out[0] = static_cast<std::byte>(number & 0xff);
    if (bytes == 2) out[1] = static_cast<std::byte>(number >> 8);
  }
  static Index get_bytes(Index bytes, const std::byte* in) {
    const int low = std::to_integer<int>(in[0]);
    return bytes == 1 ? low : low | std::to_integer<int>(in[1]) << 8;
  }

  // Channels of a group; both ascending.
  struct Channels {
    std::vector<Index> outliers;
    std::vector<Index> inner;
  };

  // Outliers are the channels of largest norm, of equal norms the lower.
  Channels channels_of(ConstMatrix vectors) const {
    SquareSums sums(d_);
    sums.see(vectors);
    sums.add(vectors);
    const Vector& squares = sums.sums();
    std::vector<Index> all(squares.size());
    std::iota(all.begin(), all.end(), 0);
    const auto middle = all.begin() + p_.outliers;
    std::nth_element(all.begin(), middle, all.end(), [&](Index a, Index b) {
      const double of_a = squares[a];
      const double of_b = squares[b];
      return of_a > of_b || (of_a == of_b && a < b);
    });
    Channels out{{all.begin(), middle}, {middle, all.end()}};
    std::sort(out.outliers.begin(), out.outliers.end());
    std::sort(out.inner.begin(), out.inner.end());
    return out;
  }

  // |k| and |k_o| of every token.
  void put_norms(ConstMatrix vectors, const std::vector<Index>& outliers, std::byte* code) const {
    Vector norms(p_.group);
    vector_norms(vectors, norms.data());
    for (Index t = 0; t < p_.group; ++t) {
      put_norm(norms[t], code + t * token_bytes());
    }
    if (p_.outliers == 0) return;
    VectorRows outer(p_.group, p_.outliers);
    for (Index t = 0; t < p_.group; ++t) {
      double* to = outer.row(t);
      for (const Index channel : outliers) *to++ = vectors(t, channel);
    }
    vector_norms(outer.all(), norms.data());
    for (Index t = 0; t < p_.group; ++t) {
      put_norm(norms[t], code + t * token_bytes() + kStoredNormBytes);
    }
  }

  // Writes every token's signs of the first `count` projections of some channels.
  void put_signs(ConstMatrix vectors, const std::vector<Index>& channels, Index count,
                 std::byte* code) const {
    VectorRows projected(p_.group, count);
    s_.apply(vectors, channels, projected.all());
    for (Index t = 0; t < p_.group; ++t, code += token_bytes()) {
      kvbench::put_signs<SignBit::kAboveZero>(projected.row(t), count, code);
    }
  }

  // Signs of every token as 1 and -1, [group, count].
  VectorRows sides_of(Index count, const std::byte* code) const {
    VectorRows out(p_.group, count);
    std::vector<std::uint8_t> codes(count);
    for (Index t = 0; t < p_.group; ++t, code += token_bytes()) {
      BitReader signs(code);
      signs.get_all(codes.data(), count, 1);
      double* sides = out.row(t);
      for (std::size_t r = 0; r < codes.size(); ++r) sides[r] = codes[r] != 0 ? 1.0 : -1.0;
    }
    return out;
  }

  // Turns sums S^T b over `count` rows into sqrt(pi / 2) / count size S^T b.
  static void scale(const Vector& sizes, Index count, MutableMatrix sums) {
    for (Index t = 0; t < sums.rows; ++t) {
      const double factor = std::sqrt(std::numbers::pi / 2.0) / count * sizes[t];
      double* x = sums.row(t);
      for (Index k = 0; k < sums.cols; ++k) x[k] *= factor;
    }
  }

  Parameters p_;
  Index d_;
  Index outlier_bits_;
  Index index_bytes_;
  DenseMap s_;
};

using Clause = std::optional<std::pair<std::string, std::string>>;

Clause invalid(const Parameters& p) {
  const auto not_multiple = [](const char* name, Index value, Index of) -> Clause {
    if (value % of == 0) return std::nullopt;
    return std::pair(name, fmt::format("must be a multiple of {}, got {}", of, value));
  };
  if (auto wrong = not_multiple("bits", p.bits, 8)) return wrong;
  if (auto wrong = not_multiple("outlier_bits", p.outlier_bits, 8)) return wrong;
  if (p.outliers > 0 && p.outlier_bits > p.bits) {
    return std::pair("outlier_bits",
                     fmt::format("must be at most bits, {}, got {}", p.bits, p.outlier_bits));
  }
  if (p.buffer % p.group == 0) return std::nullopt;
  return std::pair("buffer",
                   fmt::format("must be a multiple of group, {}, got {}", p.group, p.buffer));
}

}  // namespace

CodecDescription describe_codec_qjl() {
  TypedCodec<Parameters> c;
  using P = Parameters;
  c.id = "qjl";
  c.title = "signs of random projections of keys, and norms";
  c.source = "QJL (Zandieh et al.) and its released code";
  c.bits =
      "(bits + outlier_bits + 32)/d + 8 outliers/(group d); outliers 0: (bits + 16)/d; by default "
      "8.53 at d = 64 and 4.27 at 128";
  c.of_values = false;
  c.parameters = {
      field("bits", &P::bits, "projections of a key, a multiple of 8").at_least(8).at_most(65536),
      field("outliers", &P::outliers, "channels of a group with signs and a norm of their own"),
      field("outlier_bits", &P::outlier_bits, "projections of these channels, at most bits")
          .at_least(8)
          .at_most(65536),
      field("group", &P::group, "tokens with the same outlier channels").at_least(1),
      field("buffer", &P::buffer, "tokens that are sketched together, a multiple of group")
          .at_least(1),
      field("projection", &P::projection,
            {{"orthogonal", Projection::kOrthogonal}, {"gaussian", Projection::kGaussian}},
            "rows of Haar matrices, as released, or normal ones, which are unbiased")};
  c.randomised = [](const Parameters&) { return true; };
  c.validate = invalid;
  c.skip_reason = [](const P& p, const StreamShape& shape, CacheTensor,
                     Index) -> std::optional<std::string> {
    if (p.outliers < shape.d) return std::nullopt;
    return fmt::format("{} outliers, keys have {} channels; choose fewer outliers", p.outliers,
                       shape.d);
  };
  c.create = [](const P& p, const CodecContext& context) {
    return std::make_unique<Qjl>(p, context);
  };
  return c;
}

}  // namespace kvbench
