#include "run/stored_outputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr double kTolerance = 1e-4;    // relative error of a single-precision model
constexpr double kSameScale = 0.02;    // a scale that was itself rounded to 8 bits is 0.4 % off
constexpr double kStandardErrors = 6;  // standard errors that tell an estimate from 1
constexpr double kStep = 0.05;         // step of the scale, for the derivative of outputs

bool is_half(ElementType type) { return element_bytes(type) == 2; }

// The type of the stored outputs; where that is wider than 16 bits, the coarsest of 16 bits that
// has all their numbers.
ElementType output_type(const Dump& dump, const std::string& sequence, const LayerInfo& layer) {
  if (is_half(layer.out_type)) return layer.out_type;
  std::vector<ElementType> holds = {ElementType::kBfloat16, ElementType::kFloat16};
  for (int head = 0; head < static_cast<int>(layer.query_heads) && !holds.empty(); ++head) {
    const UnfilledDoubles out = dump.read_out(sequence, layer.index, head);
    std::erase_if(holds, [&](ElementType type) {
      return std::any_of(out.begin(), out.end(),
                         [&](double x) { return rounded_to(type, x) != x; });
    });
  }
  return holds.empty() ? layer.out_type : holds.front();
}

// Least squares of out - z = ratio_of_norms z + ratio D, D being the derivative of z by the
// logarithm of the scale; rows weigh by their norm. The first term takes rounding that is not to
// nearest.
class ScaleFit {
 public:
  void add(const double* out, const double* z, const double* derivative, Index count) {
    double norm = 0.0;
    for (Index c = 0; c < count; ++c) norm += out[c] * out[c];
    if (norm == 0.0) return;
    for (Index c = 0; c < count; ++c) {
      const double e = out[c] - z[c];
      ee_ += e * e / norm;
      ez_ += e * z[c] / norm;
      ed_ += e * derivative[c] / norm;
      zz_ += z[c] * z[c] / norm;
      zd_ += z[c] * derivative[c] / norm;
      dd_ += derivative[c] * derivative[c] / norm;
    }
    count_ += count;
  }

  // The ratio of scales; nullopt where no output depends on the scale.
  std::optional<double> ratio() const {
    if (!(own() > 1e-12 * dd_)) return std::nullopt;
    return 1.0 + (ed_ - ez_ * zd_ / zz_) / own();
  }
  double standard_error() const {
    const double step = *ratio() - 1.0;
    const double rest = ee_ - ez_ * ez_ / zz_ - step * step * own();
    return std::sqrt(std::max(rest, 0.0) / count_ / own());
  }

 private:
  // Squared norm of D's part that is orthogonal to z.
  double own() const { return zz_ > 0.0 ? dd_ - zd_ * zd_ / zz_ : 0.0; }

  double ee_ = 0.0, ez_ = 0.0, ed_ = 0.0, zz_ = 0.0, zd_ = 0.0, dd_ = 0.0, count_ = 0.0;
};

struct Allowed {
  ElementType type;
  std::optional<double> tolerance;
};

// One KV head and the stored outputs of its query heads.
class StoredHead {
 public:
  StoredHead(const Dump& dump, const std::string& sequence, const LayerInfo& layer, int head,
             Index rows, Allowed allowed)
      : dump_(dump),
        data_(dump.read_stream(sequence, layer.index, head)),
        scale_(layer.scale),
        dv_(layer.dv),
        rows_(rows),
        out_type_(layer.out_type),
        allowed_(allowed),
        positions_(rows) {
    std::iota(positions_.begin(), positions_.end(), layer.tokens - rows);
    const int heads = static_cast<int>(layer.query_heads / layer.kv_heads);
    for (int g = 0; g < heads; ++g) {
      outs_.push_back(dump.read_out(sequence, layer.index, head * heads + g));
    }
    skipped_ = (layer.out_rows - rows) * dv_;
    exact_ = at(1.0);
  }

  ~StoredHead() { dump_.reuse(std::move(data_)); }
  StoredHead(const StoredHead&) = delete;
  StoredHead& operator=(const StoredHead&) = delete;

  void compare(OutputDifference& found) const {
    each_row([&](const double* out, Index place) {
      const double* z = exact_.outputs.data() + place * dv_;
      const auto [difference, allowed] = distance(out, z, place);
      found.excess = larger_difference(found.excess, excess(difference, allowed));
      const bool vanished = norm_of(out) == 0.0 && difference <= allowed;
      found.most = larger_difference(found.most, vanished ? 0.0 : relative_difference(z, out, dv_));
    });
  }

  void add_to(ScaleFit& fit) {
    const ExactRows next = at(1.0 + kStep);
    std::vector<double> derivative(dv_);
    each_row([&](const double* out, Index place) {
      const double* z = exact_.outputs.data() + place * dv_;
      const double* further = next.outputs.data() + place * dv_;
      for (Index c = 0; c < dv_; ++c) {
        derivative[c] = (further[c] - z[c]) / kStep;
      }
      fit.add(out, z, derivative.data(), dv_);
    });
  }

  // A scale with which the outputs agree, if some steps of Gauss and Newton lead to one.
  std::optional<double> fitting_scale() {
    constexpr int kSteps = 12;
    for (int step = 0; step < kSteps; ++step) {
      ScaleFit fit;
      add_to(fit);
      const auto ratio = fit.ratio();
      if (!ratio) return std::nullopt;
      scale_ *= std::clamp(*ratio, 0.5, 2.0);
      exact_ = at(1.0);
      OutputDifference found;
      compare(found);
      if (found.excess <= 1.0 && std::abs(*ratio - 1.0) < 1e-3) return scale_;
    }
    return std::nullopt;
  }

 private:
  ExactRows at(double ratio) {
    data_->stream.shape.scale = scale_ * ratio;
    return cpu_kernels().exact_attention(data_->stream, positions_);
  }

  template <class Visit>
  void each_row(const Visit& visit) const {
    const auto heads = std::ssize(outs_);
    const Index group = data_->stream.shape.heads_per_kv;
    for (Index g = 0; g < heads; ++g) {
      const double* out = outs_[g].data() + skipped_;
      for (Index r = 0; r < rows_; ++r) visit(out + r * dv_, r * group + g);
    }
  }

  double norm_of(const double* out) const {
    double norm = 0.0;
    for (Index c = 0; c < dv_; ++c) norm += out[c] * out[c];
    return std::sqrt(norm);
  }

  // ||z - out||, and what it may be.
  std::pair<double, double> distance(const double* out, const double* z, Index place) const {
    double difference = 0.0;
    for (Index c = 0; c < dv_; ++c) difference += (z[c] - out[c]) * (z[c] - out[c]);
    difference = std::sqrt(difference);
    const double norm = norm_of(out);
    if (allowed_.tolerance) return {difference, *allowed_.tolerance * norm};
    const ElementType stored = coarser(allowed_.type, out_type_);
    double rounding = 0.0;
    for (Index c = 0; c < dv_; ++c) {
      const double size = std::max(std::abs(out[c]), least_normal(stored));
      rounding += size * size;
    }
    const double logit = std::abs(exact_.max_logit[place]);
    return {difference, kTolerance * norm + unit_roundoff(stored) * std::sqrt(rounding) +
                            unit_roundoff(allowed_.type) * (2.0 + logit) * norm};
  }

  static double excess(double difference, double allowed) {
    if (difference == 0.0) return 0.0;
    return allowed > 0.0 ? difference / allowed : std::numeric_limits<double>::infinity();
  }

  const Dump& dump_;
  std::unique_ptr<StreamData> data_;
  double scale_;
  Index dv_;
  Index rows_;
  ElementType out_type_;
  Allowed allowed_;
  std::vector<Index> positions_;
  std::vector<UnfilledDoubles> outs_;
  Index skipped_ = 0;
  ExactRows exact_;
};

// Reads every query, key and value of a layer: InputError for one that is not finite.
void read_through(const Dump& dump, const std::string& sequence, const LayerInfo& layer) {
  for (int head = 0; head < static_cast<int>(layer.kv_heads); ++head) {
    dump.reuse(dump.read_stream(sequence, layer.index, head));
  }
}

// `name`: of the layer, sequence/layer.
void add(StoredOutputs& found, const OutputDifference& layer, const std::string& name,
         double stored_scale) {
  ++found.compared;
  found.most = larger_difference(found.most, layer.most);
  found.type = coarser(found.type, layer.type);
  if (layer.agrees()) return;
  found.agrees = false;
  const bool is_estimated = layer.scale_error > 0.0;  // then rounding alone may fit some scale
  if (layer.fitting_scale && (!is_estimated || layer.other_scale())) {
    found.scales.push_back(fmt::format("{}: out fits a scale of {:.4g}, and {:.4g} is stored", name,
                                       *layer.fitting_scale, stored_scale));
  }
}

}  // namespace

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

bool OutputDifference::other_scale() const {
  const double off = std::abs(scale_ratio - 1.0);
  return most > kTolerance && off > kSameScale && off > kStandardErrors * scale_error;
}

OutputDifference output_difference(const Dump& dump, const std::string& sequence,
                                   const LayerInfo& layer, Index rows,
                                   std::optional<double> tolerance) {
  OutputDifference found;
  found.type = coarser(layer.coarsest, output_type(dump, sequence, layer));
  ScaleFit fit;
  for (int head = 0; head < static_cast<int>(layer.kv_heads); ++head) {
    StoredHead stored(dump, sequence, layer, head, rows, {found.type, tolerance});
    stored.compare(found);
    if (is_half(found.type) && !tolerance) stored.add_to(fit);
  }
  if (const auto ratio = fit.ratio()) {
    found.scale_ratio = *ratio;
    found.scale_error = fit.standard_error();
  }
  if (found.agrees()) return found;
  StoredHead first(dump, sequence, layer, 0, rows, {found.type, tolerance});
  found.fitting_scale = first.fitting_scale();
  return found;
}

StoredOutputs compare_stored_outputs(
    const Dump& dump, std::optional<double> tolerance,
    const std::function<void(const std::string& sequence, int layer, Index rows,
                             const OutputDifference& difference)>& each) {
  StoredOutputs found;
  ErrorList errors;
  for (const SequenceInfo& sequence : dump.info().sequences) {
    for (const LayerInfo& layer : sequence.layers) {
      errors.gather([&] {
        if (layer.residual_rows > 0) dump.read_residual_norms(sequence.name, layer.index);
        for (int head = 0; layer.hidden > 0 && head < static_cast<int>(layer.query_heads); ++head) {
          dump.read_wo(sequence.name, layer.index, head);
        }
        const std::string name = fmt::format("{}/{}", sequence.name, layer.index);
        const Index rows = std::min(layer.out_rows, layer.query_rows);
        if (rows == 0) {
          read_through(dump, sequence.name, layer);
          found.without_out.push_back(name);
          return;
        }
        const OutputDifference difference =
            output_difference(dump, sequence.name, layer, rows, tolerance);
        each(sequence.name, layer.index, rows, difference);
        add(found, difference, name, layer.scale);
      });
    }
  }
  errors.throw_if_any();
  return found;
}

}  // namespace kvbench
