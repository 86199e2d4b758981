#include "storage/stored_cache.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "core/canonical.hpp"
#include "core/error.hpp"
#include "kernels/packed_keys.hpp"

namespace kvbench {
namespace {

// Ascending, each once.
void settle(std::vector<std::int32_t>& tokens) {
  if (!std::is_sorted(tokens.begin(), tokens.end())) std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

// Sums of squares of a difference and of what it is relative to.
struct Squares {
  double error = 0.0;
  double original = 0.0;

  void add(const double* stored, const double* original_vector, Index width) {
    for (Index k = 0; k < width; ++k) {
      const double difference = stored[k] - original_vector[k];
      error += difference * difference;
      original += original_vector[k] * original_vector[k];
    }
  }
  std::optional<double> relative() const {
    if (original == 0.0) return std::nullopt;
    return std::sqrt(error / original);
  }
};

}  // namespace

HeldTensor::HeldTensor(const StoredTensor& tensor, Index prompt)
    : tensor_(tensor), prompt_(prompt) {
  if (tensor.is_float() || tensor.on_arrival) return;
  written_.assign(static_cast<std::size_t>(tensor.original.rows), 0);
  if (tensor.codec->group() > 1) {
    decoded_.assign(static_cast<std::size_t>(tensor.original.rows * tensor.original.cols), 0.0);
  }
}

void HeldTensor::hold(const std::vector<std::int32_t>& tokens) {
  if (tensor_.is_float() || tensor_.on_arrival) return;
  if (of_prompt_ >= 0 && tensor_.codec->once()) return;
  if (of_prompt_ < 0) {
    of_prompt_ = std::lower_bound(tokens.begin(), tokens.end(), prompt_) - tokens.begin();
  }
  const Index written = tensor_.codec->written(static_cast<Index>(tokens.size()), of_prompt_);
  if (tensor_.codec->group() > 1) {
    write_groups(tokens, written);
    return;
  }
  for (Index i = 0; i < written; ++i) {
    written_[static_cast<std::size_t>(tokens[static_cast<std::size_t>(i)])] = 1;
  }
}

void HeldTensor::write_groups(const std::vector<std::int32_t>& tokens, Index written) {
  if (grouped_.size() > tokens.size() ||
      !std::equal(grouped_.begin(), grouped_.end(), tokens.begin())) {
    throw CellError("a token was dropped from among those that the codec had written together");
  }
  const Index group = tensor_.codec->group();
  const Index width = tensor_.original.cols;
  std::vector<double> block(static_cast<std::size_t>(group * width));
  std::vector<std::byte> code(static_cast<std::size_t>(tensor_.codec->bytes()));
  for (auto first = static_cast<Index>(grouped_.size()); first + group <= written; first += group) {
    for (Index i = 0; i < group; ++i) {
      const double* vector = tensor_.original.row(tokens[static_cast<std::size_t>(first + i)]);
      std::copy(vector, vector + width, block.data() + i * width);
    }
    tensor_.codec->encode({block.data(), group, width}, code.data());
    tensor_.codec->decode(code.data(), {block.data(), group, width});
    for (Index i = 0; i < group; ++i) {
      const std::int32_t token = tokens[static_cast<std::size_t>(first + i)];
      std::copy(block.data() + i * width, block.data() + (i + 1) * width,
                decoded_.data() + token * width);
      written_[static_cast<std::size_t>(token)] = 1;
      grouped_.push_back(token);
    }
  }
}

const double* HeldTensor::decoded_row(Index token) const {
  const AlignedDoubles& decoded = tensor_.codec->group() > 1 ? decoded_ : tensor_.decoded;
  return decoded.data() + token * tensor_.original.cols;
}

void HeldTensor::round_trip(const std::vector<double>& vector, std::vector<double>& out) const {
  if (tensor_.codec->group() > 1) {
    throw CellError("a vector that the method makes itself cannot be written by a codec of groups");
  }
  const auto width = static_cast<Index>(vector.size());
  std::vector<std::byte> code(static_cast<std::size_t>(tensor_.codec->bytes()));
  tensor_.codec->encode({vector.data(), 1, width}, code.data());
  out.resize(vector.size());
  tensor_.codec->decode(code.data(), {out.data(), 1, width});
}

StoredCache::StoredCache(const StoredStream& stored, bool keeps_all)
    : stored_(stored),
      keeps_all_(keeps_all),
      on_arrival_(stored.keys().on_arrival && stored.values().on_arrival),
      keys_(stored.keys(), stored.prompt()),
      values_(stored.values(), stored.prompt()),
      held_(stored.held()) {
  const StoredTensor& values = stored.values();
  if (values.is_float() || values.codec->group() == 1) return;
  const Index size = values.original.rows * values.original.cols;
  both_values_.assign(static_cast<std::size_t>(2 * size), 0.0);
  for (Index j = 0; j < values.original.rows; ++j) {
    std::copy(values.original.row(j), values.original.row(j) + values.original.cols,
              both_values_.data() + j * values.original.cols);
  }
  held_.values = {both_values_.data(), 2 * values.original.rows, values.original.cols};
}

void StoredCache::list_tokens(const Sketch& sketch, Index row) {
  key_tokens_.clear();
  value_tokens_.clear();
  if (keeps_all_) {
    const StreamShape& shape = stored_.original().shape;
    for (Index j = shape.first_visible(row); j < shape.visible_end(row); ++j) {
      key_tokens_.push_back(static_cast<std::int32_t>(j));
    }
    value_tokens_ = key_tokens_;
    return;
  }
  for (const SketchRow& each : sketch.rows()) {
    if (each.token < 0) continue;
    if (each.keeps_key) key_tokens_.push_back(each.token);
    if (each.keeps_value) value_tokens_.push_back(each.token);
  }
  settle(key_tokens_);
  settle(value_tokens_);
}

void StoredCache::hold(const Sketch& sketch, Index row) {
  row_ = row;
  if (!on_arrival_) {
    list_tokens(sketch, row);
    keys_.hold(key_tokens_);
    values_.hold(value_tokens_);
  }
  refuse_unwritable(sketch);
  count(sketch);
}

void StoredCache::refuse_unwritable(const Sketch& sketch) const {
  const auto refuse = [&](CacheTensor of, const StoredTensor& stored, const HeldTensor& held) {
    if (stored.unwritable.empty()) return;
    for (const std::int32_t token : plain_tokens(sketch, of)) {
      const auto found = stored.unwritable.find(token);
      if (found != stored.unwritable.end() && held.is_written(token)) {
        throw CellError("token " + std::to_string(token) + ": " + found->second);
      }
    }
  };
  refuse(CacheTensor::kKeys, stored_.keys(), keys_);
  refuse(CacheTensor::kValues, stored_.values(), values_);
}

void StoredCache::read(const Sketch& sketch) {
  write_own_vectors(sketch);
  map_values();
}

void StoredCache::count(const Sketch& sketch) {
  written_ = {};
  const bool codes_keys = !stored_.keys().is_float();
  const bool codes_values = !stored_.values().is_float();
  if (on_arrival_) {
    const StreamShape& shape = stored_.original().shape;
    const Index visible = shape.visible_end(row_) - shape.first_visible(row_);
    const KeptCounts kept = sketch.kept_counts();
    if (codes_keys) written_.keys = keeps_all_ ? visible : kept.keys;
    if (codes_values) written_.values = keeps_all_ ? visible : kept.values;
    return;
  }
  if (keeps_all_) {
    for (const std::int32_t j : key_tokens_) {
      written_.keys += keys_.is_written(j) ? 1 : 0;
      written_.values += values_.is_written(j) ? 1 : 0;
    }
    return;
  }
  for (const SketchRow& each : sketch.rows()) {
    if (each.is_empty()) continue;
    // What belongs to no token has no place in their order: it is written as it comes.
    if (codes_keys && each.keeps_key && (each.token < 0 || keys_.is_written(each.token))) {
      written_.keys += each.copies;
    }
    if (codes_values && each.keeps_value && (each.token < 0 || values_.is_written(each.token))) {
      written_.values += each.copies;
    }
  }
}

void StoredCache::write_own_vectors(const Sketch& sketch) {
  const auto follow = [&](const HeldTensor& tensor, bool is_float,
                          const std::vector<std::vector<double>>& own,
                          std::vector<std::vector<double>>& seen,
                          std::vector<std::vector<double>>& out, auto index_of) {
    out.resize(own.size());
    seen.resize(own.size());
    for (const SketchRow& row : sketch.rows()) {
      const std::int32_t index = index_of(row);
      if (index < 0) continue;
      const auto i = static_cast<std::size_t>(index);
      const bool written = !is_float && (row.token < 0 || tensor.is_written(row.token));
      if (!written) {
        out[i] = own[i];
        seen[i].clear();
      } else if (seen[i] != own[i]) {
        tensor.round_trip(own[i], out[i]);
        seen[i] = own[i];
      }
    }
  };
  follow(keys_, stored_.keys().is_float(), sketch.own_keys, own_keys_seen_, vectors_.own_keys,
         [](const SketchRow& row) { return row.own_key; });
  follow(values_, stored_.values().is_float(), sketch.own_values, own_values_seen_,
         vectors_.own_values, [](const SketchRow& row) { return row.own_value; });
}

void StoredCache::map_values() {
  const Index tokens = stored_.original().shape.tokens;
  if (held_.values.rows == tokens) return;
  std::vector<std::int32_t>& row_of = vectors_.value_row;
  row_of.resize(static_cast<std::size_t>(tokens), -1);
  for (const std::int32_t token : value_tokens_) {
    std::int32_t& row = row_of[static_cast<std::size_t>(token)];
    const auto decoded_row = static_cast<std::int32_t>(tokens + token);
    if (row == decoded_row) continue;  // what is written stays so
    row = values_.is_written(token) ? decoded_row : token;
    if (row != decoded_row || both_values_.empty()) continue;
    const double* decoded = values_.decoded_row(token);
    std::copy(decoded, decoded + held_.values.cols,
              both_values_.data() + decoded_row * held_.values.cols);
  }
}

QueryRow StoredCache::attended(const QueryRow& exact, const LogitBlock* decoded) {
  QueryRow query = exact;
  query.exact_x = exact.x;
  query.exact_e = exact.e;
  query.exact_row_max = exact.max_logit;
  if (stored_.keys().is_float()) return query;
  if (decoded != nullptr) {
    query.x = decoded->logits.data() + exact.query_index * decoded->tokens;
    query.e = decoded->exps.data() + exact.query_index * decoded->tokens;
    query.max_logit = decoded->max_logit[static_cast<std::size_t>(exact.query_index)];
    return query;
  }
  const StreamShape& shape = stored_.original().shape;
  const double* q = stored_.original().query(exact.head, exact.row);
  x_.assign(static_cast<std::size_t>(shape.tokens), 0.0);
  e_.assign(static_cast<std::size_t>(shape.tokens), 0.0);
  query.max_logit = stored_.original().sink(exact.head);
  for (const std::int32_t token : key_tokens_) {
    const auto j = static_cast<std::size_t>(token);
    x_[j] = exact.x[j];
    if (keys_.is_written(token)) {
      const double x = shape.scale * canonical_dot(q, keys_.decoded_row(token), shape.d);
      x_[j] = shape.softcap > 0.0 ? canonical_softcap(x, shape.softcap) : x;
      if (shape.alibi) {
        add_alibi(stored_.original(), exact.head, exact.row, token, token + 1, &x_[j]);
      }
    }
    query.max_logit = std::max(query.max_logit, x_[j]);
  }
  for (const std::int32_t token : key_tokens_) {
    const auto j = static_cast<std::size_t>(token);
    e_[j] = canonical_exp(x_[j] - query.max_logit);
  }
  query.x = x_.data();
  query.e = e_.data();
  return query;
}

std::vector<std::int32_t> StoredCache::plain_tokens(const Sketch& sketch,
                                                    CacheTensor tensor) const {
  std::vector<std::int32_t> tokens;
  if (keeps_all_) {
    const StreamShape& shape = stored_.original().shape;
    for (Index j = shape.first_visible(row_); j < shape.visible_end(row_); ++j) {
      tokens.push_back(static_cast<std::int32_t>(j));
    }
    return tokens;
  }
  for (const SketchRow& row : sketch.rows()) {
    const bool is_held = tensor == CacheTensor::kKeys ? row.keeps_key && row.own_key < 0
                                                      : row.keeps_value && row.own_value < 0;
    if (row.token >= 0 && is_held) tokens.push_back(row.token);
  }
  settle(tokens);
  return tokens;
}

StoredErrors StoredCache::errors(const Sketch& sketch) const {
  const StreamShape& shape = stored_.original().shape;
  Squares keys;
  Squares values;
  for (const std::int32_t token : plain_tokens(sketch, CacheTensor::kKeys)) {
    keys.add(keys_.row(token), stored_.keys().original.row(token), shape.d);
  }
  for (const std::int32_t token : plain_tokens(sketch, CacheTensor::kValues)) {
    values.add(values_.row(token), stored_.values().original.row(token), shape.dv);
  }
  std::set<std::int32_t> own_keys;
  std::set<std::int32_t> own_values;
  for (const SketchRow& row : sketch.rows()) {
    if (row.own_key >= 0) own_keys.insert(row.own_key);
    if (row.own_value >= 0) own_values.insert(row.own_value);
  }
  for (const std::int32_t i : own_keys) {
    const auto at = static_cast<std::size_t>(i);
    keys.add(vectors_.own_keys[at].data(), sketch.own_keys[at].data(), shape.d);
  }
  for (const std::int32_t i : own_values) {
    const auto at = static_cast<std::size_t>(i);
    values.add(vectors_.own_values[at].data(), sketch.own_values[at].data(), shape.dv);
  }
  return {keys.relative(), values.relative()};
}

}  // namespace kvbench
