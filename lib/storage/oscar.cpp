// oscar: vectors turned by a matrix that other texts give, clipped, and written in two bits.
//
// Source: OSCAR (Zhou et al., arXiv 2605.17757), FutureMLS-Lab/OSCAR 473ff3f
// (rotation/compute_kv_rotation.py; QuantKernel/oscar_rotation_clip_int2_kv.py).
//   target of keys (qqt): the mean of q q^T over rows and query heads; target of values (sst): the
//   mean of v v^T over tokens, weighted by w = k^T (mean of q q^T) k
//   matrix (r_h_pbr): R = U H P. U: the target's eigenvectors, by rising eigenvalue; H: Hadamard's;
//   column j of U H P is column d - 1 - (j with its bits reversed) of U H
//   clip c: |x R| is limited to the number at place floor(c d) of its sorted sizes, from 0
//   a group: scale = (largest - least) / (2^bits - 1), zero = -least / scale, codes
//   floor(x / scale + zero + 1/2), which read as (code - zero) scale. Codes are of the scale and
//   zero as computed; both are stored in binary32 (`scales` fp32)
//   the first 64 and the last 256 tokens, the answered row's included, are held unquantised
// The release has one matrix for the KV heads of a layer, from the mean of their targets (`share`
// layer); its second version has one for each (`share` head).
// Departures: an eigenvector's sign, which the release leaves to LAPACK, makes its component of
// largest size positive (of equal ones the first). All is in double precision, where the release
// rounds vectors and matrix to bfloat16. It writes tokens as they leave the recent ones in eights;
// here each is. It takes ranges below 1e-8 for that, here 0 alone is. Bits other than 2 are not the
// release's. Its codes by Lloyd and Max's points (SGLANG_LLOYD_MAX) are not here. Without a
// calibration file the prompt calibrates itself.
// Compared on the shipped dump, once: its compute_qqt, compute_sst and compose_rotation, with signs
// as above, give matrices within 6e-13 (layers 0, 1 and 15, each KV head and all three, 960
// tokens). Its kernels, run by Triton's interpreter on 128 turned keys and values in bfloat16, give
// 16,383 of 16,384 codes; the other number is at the border of two codes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "numerics/random_matrix.hpp"
#include "numerics/symmetric_eigen.hpp"
#include "parameters/calibrated.hpp"
#include "storage/bit_stream.hpp"
#include "storage/codec.hpp"
#include "storage/dense_map.hpp"
#include "storage/half.hpp"
#include "storage/little_endian.hpp"
#include "storage/number_blocks.hpp"
#include "storage/orthogonal_map.hpp"
#include "storage/vector_rows.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

using Vector = std::vector<double>;

enum class Stored { kFloat, kHalf, kExact };  // formats of scale and zero

struct Parameters {
  Index bits = 2;
  std::optional<Index> group;
  std::optional<double> clip;
  Index sinks = 64;
  Index recent = 256;
  Stored scales = Stored::kFloat;
  bool of_layer = false;
  OptionalCalibration calibration;
};

constexpr double kRangeOfOne = 1e-8;  // in place of 0, that of one number

double clip_of(const Parameters& p, CacheTensor tensor) {
  return p.clip.value_or(tensor == CacheTensor::kKeys ? 0.96 : 0.92);
}

// Tokens of the prompt that its end sees.
struct Seen {
  Index first;
  Index last;

  Seen(const StreamShape& shape, Index prompt)
      : first(std::min(shape.first_visible(prompt), prompt)), last(prompt) {}
  // `begin`: the token of row 0.
  ConstMatrix of(ConstMatrix rows, Index begin = 0) const {
    return {rows.row(first - begin), last - first, rows.cols, rows.stride};
  }
};

std::optional<std::string> lacks_queries(const StreamShape& shape, Index prompt) {
  const Seen seen(shape, prompt);
  if (seen.first == seen.last) {
    return "the visible prompt is empty, and oscar calibrates on it; name a calibration file";
  }
  if (shape.first_query <= seen.first) return std::nullopt;
  return fmt::format(
      "calibrates on the queries of prompt rows {} to {}, but the dump has only rows from {} on; "
      "name a calibration file",
      seen.first, prompt - 1, shape.first_query);
}

// A sum of x x^T, [d, d], its upper triangle alone, and the number or weight of its terms.
struct Target {
  Vector sum;
  double weight = 0.0;
};
using Targets = std::map<int, Target>;  // by KV head

// Queries of each KV head.
Targets query_targets(const CalibrationTexts& texts) {
  Targets targets;
  texts.for_each([&](const Stream& stream, Index prompt) {
    require_none(lacks_queries(stream.shape, prompt));
    const Seen seen(stream.shape, prompt);
    const Index d = stream.shape.d;
    Target& target = targets[stream.id.kv_head];
    target.sum.resize(d * d);
    for (const ConstMatrix& queries : stream.queries) {
      add_gram(seen.of(queries, stream.shape.first_query), {target.sum.data(), d, d});
      target.weight += seen.last - seen.first;
    }
  });
  for (auto& [head, target] : targets) {
    const Index d = texts.d;
    mirror_upper({target.sum.data(), d, d});
  }
  return targets;
}

// Values of each KV head, weighted by what its queries make of their keys.
Targets value_targets(const CalibrationTexts& texts, const Targets& queries) {
  Targets targets;
  texts.for_each([&](const Stream& stream, Index prompt) {
    const Seen seen(stream.shape, prompt);
    const Index d = stream.shape.d;
    const Index dv = stream.shape.dv;
    const ConstMatrix keys = seen.of(stream.keys);
    const ConstMatrix values = seen.of(stream.values);
    const Target& of_queries = queries.at(stream.id.kv_head);
    VectorRows through(keys.rows, d);
    multiply(keys, {of_queries.sum.data(), d, d}, through.all());
    VectorRows weighted(values.rows, dv);
    Target& target = targets[stream.id.kv_head];
    target.sum.resize(dv * dv);
    for (Index t = 0; t < keys.rows; ++t) {
      const double weight = std::max(0.0, canonical_dot(through.row(t), keys.row(t), d));
      target.weight += weight;
      const double root = std::sqrt(weight);
      for (Index k = 0; k < dv; ++k) weighted.row(t)[k] = root * values(t, k);
    }
    add_gram(weighted.view(), {target.sum.data(), dv, dv});
  });
  return targets;
}

// The mean of the KV heads' means.
Vector mean_target(const Targets& targets) {
  Vector mean(targets.begin()->second.sum.size(), 0.0);
  for (const auto& [head, target] : targets) {
    if (target.weight == 0.0) continue;
    for (std::size_t k = 0; k < mean.size(); ++k) mean[k] += target.sum[k] / target.weight;
  }
  for (double& x : mean) {
    x /= static_cast<double>(targets.size());
    if (!std::isfinite(x))
      throw CellError("products of the texts' queries, keys or values overflow");
  }
  return mean;
}

// Column of U H that becomes column j.
Index column_of(Index j, Index d) {
  Index reversed = 0;
  for (Index bit = 1; bit < d; bit *= 2) reversed = 2 * reversed + (j & bit) / bit;
  return d - 1 - reversed;
}

// R of a target, [d, d]: a row vector x is turned to x R.
Vector turning(Vector target, Index d) {
  mirror_upper({target.data(), d, d});
  SymmetricEigen eigen = symmetric_eigen(std::move(target), d);
  std::ranges::reverse(eigen.vectors);
  Vector matrix(d * d);
  Vector row(d);
  for (Vector& vector : eigen.vectors) {
    const auto largest =
        std::ranges::max_element(vector, {}, [](double x) { return std::fabs(x); });
    if (*largest < 0.0) {
      for (double& x : vector) x = -x;
    }
  }
  for (Index k = 0; k < d; ++k) {
    for (Index i = 0; i < d; ++i) row[i] = eigen.vectors[i][k];
    hadamard_transform(row.data(), d);
    for (Index j = 0; j < d; ++j) matrix[k * d + j] = row[column_of(j, d)];
  }
  return matrix;
}

const char* name_of(CacheTensor tensor) {
  return tensor == CacheTensor::kKeys ? "key_rotation" : "value_rotation";
}

Vector turning_of(const CalibrationTexts& texts, const Targets& queries, CacheTensor tensor) {
  const Targets targets = tensor == CacheTensor::kKeys ? queries : value_targets(texts, queries);
  const Vector target = mean_target(targets);
  return turning(target, std::llround(std::sqrt(std::ssize(target))));
}

CalibratedNumbers calibrated_numbers(const Parameters&, const CalibrationTexts& texts) {
  const Targets queries = query_targets(texts);
  CalibratedNumbers out;
  for (const CacheTensor tensor : {CacheTensor::kKeys, CacheTensor::kValues}) {
    Vector matrix = turning_of(texts, queries, tensor);
    const Index d = std::llround(std::sqrt(std::ssize(matrix)));
    out[name_of(tensor)] = {{d, d}, std::move(matrix)};
  }
  return out;
}

// R^T, whose rows a DenseMap multiplies vectors with. The stream must live as long.
std::function<Vector()> map_of(const Parameters& p, const CodecContext& context) {
  return [&stream = context.stream, p, prompt = context.prompt, tensor = context.tensor] {
    const Index d = width_of(stream.shape, tensor);
    Vector matrix;
    if (p.calibration) {
      matrix = calibrated(*p.calibration, stream, name_of(tensor), {d, d});
    } else {
      const CalibrationTexts texts = one_text(stream, prompt);
      matrix = turning_of(texts, query_targets(texts), tensor);
    }
    for (Index i = 0; i < d; ++i) {
      for (Index j = 0; j < i; ++j) std::swap(matrix[i * d + j], matrix[j * d + i]);
    }
    return matrix;
  };
}

Index bytes_of(Stored scales) {
  return scales == Stored::kHalf ? 2 : scales == Stored::kFloat ? 4 : 8;
}

void put_number(double x, Stored scales, std::byte* out) {
  if (scales == Stored::kHalf) {
    put_half(x, out);
    return;
  }
  const bool fits = std::isfinite(scales == Stored::kFloat ? static_cast<float>(x) : x);
  if (!fits) throw CellError("a scale or a zero is beyond the range of its format");
  if (scales == Stored::kFloat) {
    put_float(static_cast<float>(x), out);
  } else {
    put_double(x, out);
  }
}

double get_number(Stored scales, const std::byte* in) {
  if (scales == Stored::kHalf) return get_half(in);
  return scales == Stored::kFloat ? get_float(in) : get_double(in);
}

class Oscar final : public Codec {
 public:
  Oscar(const Parameters& p, const CodecContext& context)
      : p_(p),
        d_(context.width()),
        group_(p.group.value_or(d_)),
        clip_(clip_of(p, context.tensor)),
        top_(std::ldexp(1.0, static_cast<int>(p.bits)) - 1.0),
        map_(d_, d_, map_of(p, context)) {}

  Index bytes() const override { return codes_at() + packed_bytes(d_, static_cast<int>(p_.bits)); }
  Index shared_bytes() const override { return map_.bytes(); }
  Index sinks() const override { return p_.sinks; }
  Index written(Index held, Index) const override {
    return std::max<Index>(held - p_.sinks - p_.recent, 0);
  }
  void encode(ConstMatrix vectors, std::byte* code) const override { encode_all(vectors, code); }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    decode_all(code, vectors);
  }
  void encode_all(ConstMatrix vectors, std::byte* codes) const override {
    VectorRows turned(vectors.rows, d_);
    map_.apply(vectors, turned.all());
    for (Index t = 0; t < vectors.rows; ++t, codes += bytes()) {
      limit(turned.row(t));
      write(turned.row(t), codes);
    }
  }
  void decode_all(const std::byte* codes, MutableMatrix vectors) const override {
    VectorRows turned(vectors.rows, d_);
    for (Index t = 0; t < vectors.rows; ++t, codes += bytes()) read(codes, turned.row(t));
    map_.apply_transposed(turned.view(), vectors);
  }

 private:
  Index codes_at() const { return d_ / group_ * 2 * bytes_of(p_.scales); }

  void limit(double* x) const {
    if (clip_ <= 0.0) return;
    Vector sizes(d_);
    for (Index k = 0; k < d_; ++k) sizes[k] = std::fabs(x[k]);
    const Index place = std::min(static_cast<Index>(clip_ * static_cast<double>(d_)), d_ - 1);
    std::nth_element(sizes.begin(), sizes.begin() + place, sizes.end());
    const double most = sizes[place];
    for (Index k = 0; k < d_; ++k) x[k] = std::clamp(x[k], -most, most);
  }

  void write(const double* x, std::byte* code) const {
    BitWriter out(code + codes_at());
    for (Index first = 0; first < d_; first += group_, code += 2 * bytes_of(p_.scales)) {
      const auto [least, largest] = std::minmax_element(x + first, x + first + group_);
      const double range = *largest - *least;
      const double scale = (range > 0.0 ? range : kRangeOfOne) / top_;
      const double zero = -*least / scale;
      put_number(scale, p_.scales, code);
      put_number(zero, p_.scales, code + bytes_of(p_.scales));
      for (Index k = first; k < first + group_; ++k) {
        const double at = std::floor(x[k] / scale + zero + 0.5);
        out.put(static_cast<std::uint32_t>(std::clamp(at, 0.0, top_)), static_cast<int>(p_.bits));
      }
    }
    out.finish();
  }

  void read(const std::byte* code, double* x) const {
    BitReader in(code + codes_at());
    for (Index first = 0; first < d_; first += group_, code += 2 * bytes_of(p_.scales)) {
      const double scale = get_number(p_.scales, code);
      const double zero = get_number(p_.scales, code + bytes_of(p_.scales));
      for (Index k = first; k < first + group_; ++k) {
        x[k] = (in.get(static_cast<int>(p_.bits)) - zero) * scale;
      }
    }
  }

  Parameters p_;
  Index d_;
  Index group_;
  double clip_;
  double top_;
  DenseMap map_;
};

std::optional<std::string> cannot_turn(const Parameters& p, const StreamShape& shape,
                                       CacheTensor tensor, Index prompt) {
  const Index width = width_of(shape, tensor);
  if (auto why =
          cannot_rotate(Rotation::kHadamard, width, "choose a codec without one, such as kivi")) {
    return why;
  }
  if (auto why = uneven_blocks(shape, tensor, p.group.value_or(width),
                               fmt::format("choose a group that divides {}", width))) {
    return why;
  }
  return p.calibration ? std::nullopt : lacks_queries(shape, prompt);
}

}  // namespace

CodecDescription describe_codec_oscar() {
  TypedCodec<Parameters> c;
  using P = Parameters;
  c.id = "oscar";
  c.title = "two bits of vectors that a calibrated matrix turns and a quantile clips";
  c.source = "OSCAR (Zhou et al.) and its released code";
  c.bits = "b + 64/group (scales fp16: b + 32/group; exact: b + 128/group)";
  c.can_rotate = false;  // its own matrix turns them
  c.parameters = {
      field("bits", &P::bits, "bits of a code; the release has 2").at_least(2).at_most(8),
      field("group", &P::group, "numbers of a vector that share scale and zero; all: the vector's")
          .at_least(1)
          .or_word("all"),
      field("clip", &P::clip,
            "quantile of a vector's sizes that the others are limited to; 0: no limit; released: "
            "0.96 of keys, 0.92 of values")
          .at_most(1)
          .or_word("released"),
      field("sinks", &P::sinks, "oldest tokens, which are held unquantised"),
      field("recent", &P::recent, "newest tokens, which are held unquantised"),
      field("scales", &P::scales,
            {{"fp32", Stored::kFloat}, {"fp16", Stored::kHalf}, {"exact", Stored::kExact}},
            "how scales and zeros are stored: in 32 or 16 bits, or as computed (64 bits)"),
      field("share", &P::of_layer, {{"head", false}, {"layer", true}},
            "what shares a matrix: a KV head, or all of a layer, which needs a calibration file"),
      calibration_field(&P::calibration)};
  c.validate = [](const P& p) -> std::optional<std::pair<std::string, std::string>> {
    if (!p.of_layer || p.calibration) return std::nullopt;
    return std::pair("share",
                     "needs a calibration file, since a cell has one KV head's stream; name one in "
                     "calibration, or choose share head");
  };
  c.skip_reason = cannot_turn;
  c.calibration_params = {"share"};
  c.calibrate = calibrated_numbers;
  c.calibrates_layer = [](const P& p) { return p.of_layer; };
  c.create = [](const P& p, const CodecContext& context) {
    return std::make_unique<Oscar>(p, context);
  };
  return c;
}

}  // namespace kvbench
