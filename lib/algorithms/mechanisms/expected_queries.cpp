#include "algorithms/mechanisms/expected_queries.hpp"

#include <algorithm>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "core/rotation.hpp"
#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kQueriesAtOnce = 64;

std::size_t size_of(Index rows, Index cols) { return rows * cols; }

// Queries before rotation, some rows at a time: [rows][d] of each query head.
class UnrotatedQueries {
 public:
  UnrotatedQueries(const Stream& stream, PromptRange rows) : stream_(stream), rows_(rows) {
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      heads_.emplace_back(size_of(kQueriesAtOnce, stream.shape.d));
    }
  }

  // Calls body(count) for one block of rows after the other.
  template <class Body>
  void for_each_block(const Body& body) {
    for (Index first = rows_.first; first < rows_.last; first += kQueriesAtOnce) {
      const Index count = std::min(kQueriesAtOnce, rows_.last - first);
      parallel_for(count, [&](Index r) {
        const Turn back(*stream_.shape.rope, -static_cast<double>(first + r));
        for (std::size_t g = 0; g < heads_.size(); ++g) {
          back.apply(stream_.query(static_cast<int>(g), first + r), stream_.shape.d,
                     heads_[g].data() + r * stream_.shape.d);
        }
      });
      body(count);
    }
  }

  double* row(std::size_t g, Index r) { return heads_[g].data() + r * stream_.shape.d; }

 private:
  const Stream& stream_;
  PromptRange rows_;
  std::vector<std::vector<double>> heads_;
};

void divide(std::vector<double>& numbers, Index by) {
  for (double& x : numbers) x /= by;
}

using Vectors = std::vector<std::vector<double>>;  // by query head

// Calls body(queries, rows) for blocks of rows of one text after the other.
template <class Body>
void for_each_block(const CalibrationTexts& texts, const RowsOfText& rows, const Body& body) {
  texts.for_each([&](const Stream& stream, Index prompt) {
    UnrotatedQueries queries(stream, rows(stream, prompt));
    queries.for_each_block([&](Index count) { body(queries, count); });
  });
}

Vectors means(const CalibrationTexts& texts, const RowsOfText& rows, Index& total) {
  Vectors out(texts.heads_per_kv, std::vector<double>(texts.d, 0.0));
  for_each_block(texts, rows, [&](UnrotatedQueries& queries, Index count) {
    for (std::size_t g = 0; g < out.size(); ++g) {
      for (Index r = 0; r < count; ++r) {
        const double* q = queries.row(g, r);
        for (Index k = 0; k < texts.d; ++k) out[g][k] += q[k];
      }
    }
    total += count;
  });
  for (auto& mean : out) divide(mean, total);
  return out;
}

Vectors covariances(const CalibrationTexts& texts, const RowsOfText& rows, Index total,
                    const Vectors& mean) {
  const Index d = texts.d;
  Vectors out(mean.size(), std::vector<double>(size_of(d, d), 0.0));
  for_each_block(texts, rows, [&](UnrotatedQueries& queries, Index count) {
    for (std::size_t g = 0; g < mean.size(); ++g) {
      for (Index r = 0; r < count; ++r) {
        double* q = queries.row(g, r);
        for (Index k = 0; k < d; ++k) q[k] -= mean[g][k];
      }
    }
    for (std::size_t g = 0; g < mean.size(); ++g) {
      add_gram({queries.row(g, 0), count, d}, {out[g].data(), d, d});
    }
  });
  for (auto& covariance : out) {
    mirror_upper({covariance.data(), d, d});
    divide(covariance, total);
  }
  return out;
}

// A S A^T for the linear map A of `turn` and a symmetric S [d, d].
void turn_both_sides(const Turn& turn, Index d, std::vector<double>& s) {
  std::vector<double> turned(s.size());
  for (int side = 0; side < 2; ++side) {
    for (Index a = 0; a < d; ++a) turn.apply(s.data() + a * d, d, turned.data() + a * d);
    for (Index a = 0; a < d; ++a) {
      for (Index b = 0; b < d; ++b) s[size_of(b, d) + a] = turned[size_of(a, d) + b];
    }
  }
}

// One array as vectors by query head.
Vectors read_vectors(const CalibrationParameter& calibration, const Stream& stream,
                     const std::string& name, std::vector<Index> shape) {
  const std::vector<double> all = calibrated(calibration, stream, name, shape);
  const Index length = std::ssize(all) / shape.front();
  Vectors out;
  for (auto at = all.begin(); at != all.end(); at += length) out.emplace_back(at, at + length);
  return out;
}

ExpectedQueries read_queries(const CalibrationParameter& calibration, const Stream& stream,
                             bool covariance) {
  const Index heads = stream.shape.heads_per_kv;
  const Index d = stream.shape.d;
  ExpectedQueries out{read_vectors(calibration, stream, "mean", {heads, d}), {}};
  if (covariance) out.covariance = read_vectors(calibration, stream, "covariance", {heads, d, d});
  return out;
}

std::vector<double> joined(const Vectors& vectors) {
  std::vector<double> out;
  for (const auto& each : vectors) out.insert(out.end(), each.begin(), each.end());
  return out;
}

}  // namespace

ExpectedQueries unrotated_queries(const CalibrationTexts& texts, const RowsOfText& rows,
                                  bool covariance) {
  ExpectedQueries out;
  Index total = 0;
  out.mean = means(texts, rows, total);
  if (covariance) out.covariance = covariances(texts, rows, total, out.mean);
  return out;
}

void turn_to_future(ExpectedQueries& queries, const Rope& rope, Index first_future, Index future) {
  const Turn turn = Turn::mean(rope, first_future, first_future + future);
  for (auto& mean : queries.mean) {
    const std::vector<double> unturned = mean;
    turn.apply(unturned.data(), std::ssize(mean), mean.data());
  }
  for (auto& each : queries.covariance) {
    turn_both_sides(turn, std::ssize(queries.mean.front()), each);
  }
}

ExpectedQueries expected_queries(const Stream& stream, PromptRange rows, Index first_future,
                                 Index future, bool covariance) {
  ExpectedQueries out = unrotated_queries(
      one_text(stream, rows.last), [&](const Stream&, Index) { return rows; }, covariance);
  turn_to_future(out, *stream.shape.rope, first_future, future);
  return out;
}

std::vector<double> expected_logits(const ExpectedQueries& queries, int g, const Stream& stream,
                                    PromptRange tokens) {
  const Index d = stream.shape.d;
  const double scale = stream.shape.scale;
  const double* mean = queries.mean[g].data();
  std::vector<double> out(tokens.size());
  parallel_for(tokens.size(), [&](Index j) {
    const double* key = stream.keys.row(tokens.first + j);
    double logit = scale * canonical_dot(mean, key, d);
    if (!queries.covariance.empty()) {
      const double* rows = queries.covariance[g].data();
      std::vector<double> product(d, 0.0);
      for (Index a = 0; a < d; ++a) {
        for (Index b = 0; b < d; ++b) {
          double& sum = product[b];
          sum = fused(key[a], rows[a * d + b], sum);
        }
      }
      logit += scale * scale / 2.0 * canonical_dot(product.data(), key, d);
    }
    out[j] = logit;
  });
  return out;
}

ExpectedAttention::Result ExpectedAttention::compute(const SharedContext& context) const {
  const Stream& stream = context.stream;
  const PromptRange tokens = compressed_prompt(stream.shape, context.prompt, sinks, 0).middle;
  ExpectedQueries queries;
  if (calibration) {
    queries = read_queries(*calibration, stream, covariance);
    turn_to_future(queries, *stream.shape.rope, context.prompt, future);
  } else {
    queries = expected_queries(stream, tokens, context.prompt, future, covariance);
  }
  Result total(tokens.size(), 0.0);
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    std::vector<double> head = expected_logits(queries, g, stream, tokens);
    softmax(head.data(), head.size(), "expected logits of the prompt");
    for (std::size_t j = 0; j < total.size(); ++j) total[j] += head[j];
  }
  for (double& x : total) x /= stream.shape.heads_per_kv;
  return total;
}

CalibratedNumbers calibrated_queries(const TokenCount& sinks, const CalibrationTexts& texts) {
  const auto rows = [&](const Stream& stream, Index prompt) {
    require_none(lacks_expected_queries(sinks.of(prompt), stream.shape, prompt));
    const PromptRange middle = compressed_prompt(stream.shape, prompt, sinks.of(prompt), 0).middle;
    if (middle.size() == 0) throw CellError("no token is behind the sinks");
    return middle;
  };
  const ExpectedQueries queries = unrotated_queries(texts, rows, true);
  const Index heads = texts.heads_per_kv;
  return {{"mean", {{heads, texts.d}, joined(queries.mean)}},
          {"covariance", {{heads, texts.d, texts.d}, joined(queries.covariance)}}};
}

std::optional<std::string> cannot_expect(const TokenCount& budget, const TokenCount& sinks,
                                         const StreamShape& shape, Index prompt) {
  if (auto reason = cannot_compress(budget, sinks, 0, shape, prompt)) return reason;
  if (keeps_whole_prompt(budget.of(prompt), shape, prompt)) return std::nullopt;
  return lacks_expected_queries(sinks.of(prompt), shape, prompt);
}

std::optional<std::string> lacks_expected_queries(Index sinks, const StreamShape& shape,
                                                  Index prompt) {
  if (shape.rope == nullptr) {
    return "queries are taken back to before their rotation, but the dump has no RoPE data for "
           "this layer";
  }
  const Index first = compressed_prompt(shape, prompt, sinks, 0).middle.first;
  return lacks_prompt_queries(first, shape, prompt);
}

}  // namespace kvbench
