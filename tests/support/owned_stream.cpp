#include "support/owned_stream.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace kvbench::test {
namespace {

std::size_t size_of(Index rows, Index cols) { return static_cast<std::size_t>(rows * cols); }

void fill_gaussian(std::vector<double>& out, std::mt19937_64& rng) {
  std::normal_distribution<double> normal;
  for (double& x : out) x = normal(rng);
}

void fill_clustered(OwnedStream& owned, const StreamSpec& spec, std::mt19937_64& rng) {
  std::normal_distribution<double> normal;
  const Index balls = 5;
  std::vector<double> centres(size_of(balls, spec.d));
  for (double& x : centres) x = 3.0 * normal(rng);
  for (Index j = 0; j < spec.tokens; ++j) {
    const Index ball = static_cast<Index>(rng() % static_cast<std::uint64_t>(balls));
    for (Index k = 0; k < spec.d; ++k) {
      owned.keys[size_of(j, spec.d) + static_cast<std::size_t>(k)] =
          centres[ball * spec.d + k] + 0.1 * normal(rng);
    }
    const double size = std::exp(0.5 * normal(rng));
    for (Index k = 0; k < spec.dv; ++k) {
      owned.values[size_of(j, spec.dv) + static_cast<std::size_t>(k)] *= size;
    }
  }
}

void scale_to_largest_logit(OwnedStream& owned, double largest) {
  const StreamShape& shape = owned.stream.shape;
  double found = 0.0;
  for (const std::vector<double>& q : owned.queries) {
    for (Index i = shape.first_query; i < shape.tokens; ++i) {
      for (Index j = 0; j <= i; ++j) {
        double x = 0.0;
        for (Index k = 0; k < shape.d; ++k) {
          x += q[(i - shape.first_query) * shape.d + k] * owned.keys[j * shape.d + k];
        }
        found = std::max(found, std::fabs(shape.scale * x));
      }
    }
  }
  for (std::vector<double>& q : owned.queries) {
    for (double& x : q) x *= largest / found;
  }
}

}  // namespace

void OwnedStream::connect() {
  StreamShape& shape = stream.shape;
  stream.keys = ConstMatrix(keys.data(), shape.tokens, shape.d);
  stream.values = ConstMatrix(values.data(), shape.tokens, shape.dv);
  stream.queries.clear();
  for (const std::vector<double>& q : queries) {
    stream.queries.emplace_back(q.data(), shape.tokens - shape.first_query, shape.d);
  }
  shape.wo_v_l1 = true;
  shape.hidden = 3;
  stream.output_projection = [this](int g) {
    UnfilledDoubles out;
    for (Index i = 0; i < stream.shape.dv * stream.shape.hidden; ++i) {
      out.push_back((1.0 + g) * std::sin(static_cast<double>(7 * i + 5 * g + stream.id.layer)));
    }
    return out;
  };
  wo_v_l1.assign(queries.size(), {});
  stream.wo_v_l1.clear();
  for (std::size_t g = 0; g < wo_v_l1.size(); ++g) {
    for (Index j = 0; j < shape.tokens; ++j) {
      double norm = std::fabs(stream.values(j, 0));
      for (Index k = 0; k < shape.dv; ++k) {
        norm += static_cast<double>(g + 1) * std::fabs(stream.values(j, k));
      }
      wo_v_l1[g].push_back(norm);
    }
    stream.wo_v_l1.push_back(wo_v_l1[g].data());
  }
  if (!shape.repeat) make_up_repeat();
  const Index rows = shape.repeat ? shape.repeat->rows() : 0;
  stream.repeat_queries.clear();
  for (const std::vector<double>& q : repeat_queries) {
    stream.repeat_queries.emplace_back(q.data(), rows, shape.d);
  }
  stream.repeat_keys = ConstMatrix(repeat_keys.data(), rows, shape.d);
}

void OwnedStream::make_up_repeat() {
  const Index prompt = repeated > 0 ? repeated : stream.shape.tokens / 2;
  if (prompt < 1) return;
  RepeatPass pass;
  const Index first = prompt >= 8 ? 2 : 0;
  const Index middle = (first + prompt + 1) / 2;
  pass.parts.push_back({first, middle, middle - first + 2});
  if (middle < prompt) pass.parts.push_back({middle, prompt, prompt - middle + 3});
  const auto mixed = [&](Index a, Index b, double share, std::vector<double>& out) {
    for (Index c = 0; c < stream.shape.d; ++c) {
      out.push_back(stream.keys(a % prompt, c) + share * stream.keys(b % prompt, c));
    }
  };
  repeat_keys.clear();
  repeat_queries.assign(queries.size(), {});
  for (Index r = 0; r < pass.rows(); ++r) {
    mixed(r, r + 1, 0.5, repeat_keys);
    for (std::size_t g = 0; g < queries.size(); ++g) {
      mixed(3 * r + 5 * static_cast<Index>(g) + 1, r, -0.25, repeat_queries[g]);
    }
  }
  stream.shape.repeat = std::make_shared<const RepeatPass>(std::move(pass));
}

std::unique_ptr<OwnedStream> make_stream(const StreamSpec& spec) {
  auto owned = std::make_unique<OwnedStream>();
  owned->stream.id = {"test", 0, 0};
  owned->repeated = spec.repeated;
  StreamShape& shape = owned->stream.shape;
  shape.tokens = spec.tokens;
  shape.d = spec.d;
  shape.dv = spec.dv;
  shape.heads_per_kv = spec.heads_per_kv;
  shape.first_query = spec.first_query;
  shape.window = spec.window;
  shape.scale = 1.0 / std::sqrt(static_cast<double>(spec.d));
  shape.softcap = spec.softcap;
  shape.sinks = spec.sinks;
  shape.alibi = spec.alibi;
  shape.causal = spec.causal;
  shape.chunk = spec.chunk;
  shape.value_in_key = spec.value_in_key;
  for (int g = 0; g < spec.heads_per_kv; ++g) {
    if (spec.sinks) owned->stream.sinks.push_back(g + 1 == spec.heads_per_kv ? 4.0 : -0.7 + g);
    if (spec.alibi) owned->stream.alibi_slopes.push_back(std::pow(0.25, g + 1));
  }
  if (spec.rope_pairs > 0) {
    auto rope = std::make_shared<Rope>();
    for (int p = 0; p < spec.rope_pairs; ++p) rope->inv_freq.push_back(std::pow(0.3, p));
    rope->interleaved = spec.rope_interleaved;
    shape.rope = rope;
  }
  std::mt19937_64 rng(spec.seed * 1000003 + static_cast<std::uint64_t>(spec.kind));
  owned->keys.resize(size_of(spec.tokens, spec.d));
  owned->values.resize(size_of(spec.tokens, spec.dv));
  owned->queries.assign(spec.heads_per_kv,
                        std::vector<double>(size_of(spec.tokens - spec.first_query, spec.d)));
  fill_gaussian(owned->keys, rng);
  fill_gaussian(owned->values, rng);
  for (std::vector<double>& q : owned->queries) {
    fill_gaussian(q, rng);
    for (double& x : q) x *= spec.query_size;
  }

  const auto each = [](std::vector<double>& v, const auto& f) {
    for (double& x : v) x = f(x);
  };
  switch (spec.kind) {
    case StreamKind::kGaussian:
    case StreamKind::kHugeLogits:
      break;
    case StreamKind::kClustered:
      fill_clustered(*owned, spec, rng);
      break;
    case StreamKind::kTies: {
      const auto integer = [](double x) { return std::clamp(std::round(x), -1.0, 1.0); };
      each(owned->keys, integer);
      each(owned->values, integer);
      for (std::vector<double>& q : owned->queries) each(q, integer);
      shape.scale = 0.5;
      break;
    }
    case StreamKind::kEqualKeys:
      for (std::size_t i = static_cast<std::size_t>(spec.d); i < owned->keys.size(); ++i) {
        owned->keys[i] = owned->keys[i - static_cast<std::size_t>(spec.d)];
      }
      break;
    case StreamKind::kZeroKeys:
      each(owned->keys, [](double) { return 0.0; });
      break;
    case StreamKind::kZeroValues:
      each(owned->values, [](double) { return 0.0; });
      break;
    case StreamKind::kSomeZeroValues:
      for (Index j = 0; j < spec.tokens; ++j) {
        if (j % 3 != 0 && j != 1) continue;
        std::fill_n(owned->values.begin() + j * spec.dv, spec.dv, 0.0);
      }
      break;
  }
  if (spec.kind == StreamKind::kHugeLogits) scale_to_largest_logit(*owned, 1e4);
  if (spec.value_in_key) {
    for (Index t = 0; t < spec.tokens; ++t) {
      std::copy_n(owned->keys.begin() + t * spec.d, spec.dv, owned->values.begin() + t * spec.dv);
    }
  }
  owned->connect();
  return owned;
}

std::unique_ptr<OwnedStream> stream_of(const Rows& keys, const Rows& values,
                                       const std::vector<Rows>& queries, double scale,
                                       Index window) {
  auto owned = std::make_unique<OwnedStream>();
  owned->stream.id = {"hand", 0, 0};
  const auto flat = [](const Rows& rows) {
    std::vector<double> out;
    for (const std::vector<double>& row : rows) out.insert(out.end(), row.begin(), row.end());
    return out;
  };
  owned->keys = flat(keys);
  owned->values = flat(values);
  for (const Rows& q : queries) owned->queries.push_back(flat(q));
  StreamShape& shape = owned->stream.shape;
  shape.tokens = std::ssize(keys);
  shape.d = std::ssize(keys.front());
  shape.dv = std::ssize(values.front());
  shape.heads_per_kv = static_cast<int>(queries.size());
  shape.first_query = static_cast<Index>(keys.size() - queries.front().size());
  shape.window = window;
  shape.scale = scale;
  owned->connect();
  return owned;
}

std::unique_ptr<OwnedStream> truncated(const Stream& stream, Index tokens) {
  auto owned = std::make_unique<OwnedStream>();
  owned->stream.id = stream.id;
  owned->stream.shape = stream.shape;
  owned->stream.sinks = stream.sinks;
  owned->stream.alibi_slopes = stream.alibi_slopes;
  owned->stream.shape.tokens = tokens;
  for (const ConstMatrix& q : stream.repeat_queries) {
    owned->repeat_queries.emplace_back(q.data, q.data + q.rows * q.cols);
  }
  const ConstMatrix& repeated = stream.repeat_keys;
  owned->repeat_keys.assign(repeated.data, repeated.data + repeated.rows * repeated.cols);
  const StreamShape& shape = stream.shape;
  for (Index j = 0; j < tokens; ++j) {
    owned->keys.insert(owned->keys.end(), stream.keys.row(j), stream.keys.row(j) + shape.d);
    owned->values.insert(owned->values.end(), stream.values.row(j),
                         stream.values.row(j) + shape.dv);
  }
  for (int g = 0; g < shape.heads_per_kv; ++g) {
    std::vector<double>& q = owned->queries.emplace_back();
    for (Index i = shape.first_query; i < tokens; ++i) {
      q.insert(q.end(), stream.query(g, i), stream.query(g, i) + shape.d);
    }
  }
  owned->connect();
  return owned;
}

std::unique_ptr<OwnedStream> with_other_future(const Stream& stream, Index first,
                                               std::uint64_t seed) {
  std::unique_ptr<OwnedStream> owned = truncated(stream, stream.shape.tokens);
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  const StreamShape& shape = stream.shape;
  for (std::size_t i = size_of(first, shape.d); i < owned->keys.size(); ++i) {
    owned->keys[i] = 2.0 * normal(rng);
  }
  for (std::size_t i = size_of(first, shape.dv); i < owned->values.size(); ++i) {
    owned->values[i] = 2.0 * normal(rng);
  }
  for (std::vector<double>& q : owned->queries) {
    for (std::size_t i = size_of(std::max<Index>(0, first - shape.first_query), shape.d);
         i < q.size(); ++i) {
      q[i] = 2.0 * normal(rng);
    }
  }
  return owned;
}

}  // namespace kvbench::test
