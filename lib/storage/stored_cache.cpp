#include "storage/stored_cache.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "kernels/row_exponentials.hpp"
#include "numerics/norm.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

// Ascending, each once.
void settle(std::vector<std::int32_t>& tokens) {
  if (!std::is_sorted(tokens.begin(), tokens.end())) std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

// Whether a row is a token alone, with its key and value, behind those listed.
bool is_one_token(const SketchRow& row, const std::vector<std::int32_t>& listed) {
  return row.token >= 0 && row.copies == 1 && row.keeps_key && row.keeps_value &&
         (listed.empty() || listed.back() < row.token);
}

// Norms of a difference and of what it is relative to.
struct Difference {
  NormSum error;
  NormSum original;

  void add(const double* stored, const double* original_vector, Index width) {
    for (Index k = 0; k < width; ++k) {
      error.add(stored[k] - original_vector[k]);
      original.add(original_vector[k]);
    }
  }
  std::optional<double> relative() const {
    if (original.value() == 0.0) return std::nullopt;
    return error.value() / original.value();
  }
};

}  // namespace

HeldTensor::HeldTensor(const StoredTensor& tensor, Index prompt)
    : tensor_(tensor), prompt_(prompt) {
  if (tensor.is_float() || tensor.on_arrival) return;
  written_.assign(tensor.original.rows, 0);
}

Index HeldTensor::written_held() const {
  if (tensor_.is_float()) return 0;
  return tensor_.on_arrival ? held_ : written_held_;
}

void HeldTensor::mark(Index token) {
  std::uint8_t& written = written_[token];
  written_held_ += written == 0 ? 1 : 0;
  written = 1;
}

void HeldTensor::hold(const std::vector<std::int32_t>& tokens, bool appended) {
  held_ = std::ssize(tokens);
  if (tensor_.is_float() || tensor_.on_arrival) return;
  if (!appended) {
    first_ = 0;
    written_held_ = std::count_if(tokens.begin(), tokens.end(),
                                  [&](std::int32_t token) { return is_written(token); });
  }
  if (of_prompt_ >= 0 && tensor_.codec->once()) return;
  if (of_prompt_ < 0) {
    of_prompt_ = std::lower_bound(tokens.begin(), tokens.end(), prompt_) - tokens.begin();
  }
  const Index written = tensor_.codec->written(held_, of_prompt_);
  if (tensor_.codec->group() > 1) {
    write_groups(tokens, written, appended);
    return;
  }
  const Index sinks = tensor_.codec->sinks();
  const Index last = written > 0 ? sinks + written : 0;
  for (; first_ < last; ++first_) {
    if (first_ >= sinks) mark(tokens[first_]);
  }
}

void HeldTensor::write_groups(const std::vector<std::int32_t>& tokens, Index written,
                              bool appended) {
  const bool is_prefix = appended || (grouped_.size() <= tokens.size() &&
                                      std::equal(grouped_.begin(), grouped_.end(), tokens.begin()));
  if (!is_prefix) {
    throw CellError("a token was dropped from among those that the codec had written together");
  }
  const std::size_t group = tensor_.codec->group();
  while (grouped_.size() + group <= static_cast<std::size_t>(written)) {
    const std::int32_t* first = tokens.data() + grouped_.size();
    write_group(first);
    for (std::size_t i = 0; i < group; ++i) mark(first[i]);
    grouped_.insert(grouped_.end(), first, first + group);
  }
  first_ = std::ssize(grouped_);
}

void HeldTensor::write_group(const std::int32_t* tokens) {
  const Index group = tensor_.codec->group();
  const Index width = tensor_.original.cols;
  const bool aligned = tokens[0] % group == 0 && tokens[group - 1] == tokens[0] + group - 1;
  const bool shares = aligned && decoded_.empty();
  if (aligned) shared_ = tensor_.groups->with(tokens[0]);
  if (shares) return;
  if (decoded_.empty()) {  // the first that is not aligned
    decoded_.assign(tensor_.original.rows * width, 0.0);
    for (const std::int32_t token : grouped_) {
      std::copy_n(shared_.row(token), width, decoded_.data() + token * width);
    }
  }
  std::vector<double> block(group * width);
  if (aligned) {
    std::copy_n(shared_.row(tokens[0]), group * width, block.data());
  } else {
    std::vector<std::byte> code(tensor_.codec->bytes());
    for (Index i = 0; i < group; ++i) {
      std::copy_n(tensor_.written().row(tokens[i]), width, block.data() + i * width);
    }
    tensor_.codec->encode({block.data(), group, width}, code.data());
    tensor_.codec->decode(code.data(), {block.data(), group, width});
    for (Index i = 0; i < group; ++i) {
      tensor_.restore(tokens[i], {block.data() + i * width, 1, width});
    }
  }
  for (Index i = 0; i < group; ++i) {
    std::copy_n(block.data() + i * width, width, decoded_.data() + tokens[i] * width);
  }
}

ConstMatrix HeldTensor::decoded() const {
  const Index width = tensor_.original.cols;
  if (tensor_.codec->group() == 1) return {tensor_.decoded.data(), tensor_.original.rows, width};
  if (decoded_.empty()) return shared_;
  return {decoded_.data(), tensor_.original.rows, width};
}

void HeldTensor::round_trip(const std::vector<double>& vector, std::vector<double>& out) const {
  if (tensor_.codec->group() > 1) {
    throw CellError("a vector that the method makes itself cannot be written by a codec of groups");
  }
  const auto width = std::ssize(vector);
  std::vector<std::byte> code(tensor_.codec->bytes());
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
      held_(stored.held()),
      logits_(stored.original()) {
  const StoredTensor& values = stored.values();
  if (values.is_float() || values.codec->group() == 1) return;
  const Index size = values.original.rows * values.original.cols;
  both_values_.assign(2 * size, 0.0);
  for (Index j = 0; j < values.original.rows; ++j) {
    std::copy(values.original.row(j), values.original.row(j) + values.original.cols,
              both_values_.data() + j * values.original.cols);
  }
  held_.values = {both_values_.data(), 2 * values.original.rows, values.original.cols};
}

// Whether the lists are those before with more behind them.
bool StoredCache::list_tokens(const Sketch& sketch, Index row) {
  if (keeps_all_ && sketch.held) {
    const std::vector<std::int32_t>& held = sketch.held->tokens;
    const bool appended = !key_tokens_.empty();
    key_tokens_.insert(key_tokens_.end(), held.begin() + std::ssize(key_tokens_), held.end());
    value_tokens_ = key_tokens_;
    return appended;
  }
  if (keeps_all_) {
    const StreamShape& shape = stored_.original().shape;
    const Index lo = shape.first_visible(row);
    const bool appended = !key_tokens_.empty() && key_tokens_.front() == lo;
    if (!appended) forget_tokens();
    for (Index j = appended ? key_tokens_.back() + 1 : lo; j < shape.visible_end(row); ++j) {
      key_tokens_.push_back(static_cast<std::int32_t>(j));
    }
    value_tokens_ = key_tokens_;
    return appended;
  }
  const bool appended = append_tokens(sketch);
  if (!appended) list_all_tokens(sketch);
  listed_ = sketch.changes().now();
  rows_listed_ = sketch.size();
  return appended;
}

bool StoredCache::append_tokens(const Sketch& sketch) {
  const std::vector<std::int32_t>* changes = sketch.changes().since(listed_);
  if (changes == nullptr || !one_row_each_) return false;
  for (std::size_t c = listed_.length; c < changes->size(); ++c) {
    if ((*changes)[c] < rows_listed_) return false;
  }
  for (Index p = rows_listed_; p < sketch.size(); ++p) {
    if (!is_one_token(sketch[p], key_tokens_)) return false;
    key_tokens_.push_back(sketch[p].token);
    value_tokens_.push_back(sketch[p].token);
  }
  return true;
}

void StoredCache::forget_tokens() {
  for (const std::int32_t token : key_tokens_) {
    if (!e_.empty()) e_[token] = 0.0;
  }
  key_tokens_.clear();
  value_tokens_.clear();
}

void StoredCache::list_all_tokens(const Sketch& sketch) {
  forget_tokens();
  one_row_each_ = true;
  for (const SketchRow& each : sketch.rows()) {
    one_row_each_ = one_row_each_ && is_one_token(each, key_tokens_);
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
    const bool appended = list_tokens(sketch, row);
    keys_.hold(key_tokens_, appended);
    values_.hold(value_tokens_, appended);
    if (!appended) mapped_ = split_ = 0;
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
    KeptCounts kept = sketch.kept_counts();
    if (keeps_all_) kept = whole_tokens(shape.visible_end(row_) - shape.first_visible(row_));
    if (keeps_all_ && sketch.held) kept = sketch.held->counts();
    if (codes_keys) written_.keys = kept.keys;
    if (codes_values) written_.values = kept.values;
    return;
  }
  if (keeps_all_ || one_row_each_) {
    written_.keys = keys_.written_held();
    written_.values = values_.written_held();
    return;
  }
  for (const SketchRow& each : sketch.rows()) {
    if (each.is_empty()) continue;
    // A vector of no token has no place in their order: it is written as it comes.
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
    if (own.empty()) return;
    for (const SketchRow& row : sketch.rows()) {
      const std::int32_t index = index_of(row);
      if (index < 0) continue;
      const std::size_t i = index;
      // A method that keeps all stores its own rows for an answer in its lookup, unquantised.
      const bool written =
          !is_float && !keeps_all_ && (row.token < 0 || tensor.is_written(row.token));
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
  if (row_of.empty()) {
    row_of.resize(tokens);
    std::iota(row_of.begin(), row_of.end(), 0);
  }
  const auto last = mapped_ == 0 ? std::ssize(value_tokens_) : values_.written_first();
  for (; mapped_ < last; ++mapped_) {
    const std::int32_t token = value_tokens_[mapped_];
    std::int32_t& row = row_of[token];
    if (row != token || !values_.is_written(token)) continue;
    row = static_cast<std::int32_t>(tokens + token);
    ++vectors_.value_row_version;
    if (both_values_.empty()) continue;
    std::copy_n(values_.decoded_row(token), held_.values.cols,
                both_values_.data() + row * held_.values.cols);
  }
  mapped_ = values_.written_first();
}

void StoredCache::begin_block(const RowBlock& block, const std::vector<Index>& scored,
                              const LogitBlock* decoded) {
  block_ = &block;
  decoded_ = decoded;
  logits_.expect(scored);
}

QueryRow StoredCache::attended(const QueryRow& query) {
  const TokenLogits original = logits_of(block_->logits(), query.query_index);
  QueryRow out = query;
  out.logits = ReadLogits(original);
  if (stored_.keys().is_float()) return out;
  if (decoded_ != nullptr) {
    out.logits->read = logits_of(*decoded_, query.query_index);
    return out;
  }
  if (logits_row_ != row_) find_logits();
  double* x = logits_.of_head(query.head);
  for (const std::int32_t token : other_keys_) x[token] = original.x[token];
  const double largest = exponentiate_held(x, stored_.original().sink(query.head));
  out.logits->read = {x, e_.data(), largest};
  return out;
}

void StoredCache::find_logits() {
  if (split_ == 0) {
    written_keys_.clear();
    other_keys_.clear();
  }
  const std::vector<std::int32_t> waiting = std::move(other_keys_);
  other_keys_.clear();
  const std::ptrdiff_t before = written_keys_.size();
  const auto split = [&](std::int32_t token) {
    (keys_.is_written(token) ? written_keys_ : other_keys_).push_back(token);
  };
  for (const std::int32_t token : waiting) split(token);
  for (; split_ < key_tokens_.size(); ++split_) split(key_tokens_[split_]);
  std::inplace_merge(written_keys_.begin(), written_keys_.begin() + before, written_keys_.end());
  logits_.go_to(row_, written_keys_, keys_.decoded());
  logits_row_ = row_;
}

// e_ of the held tokens; returns the largest of their x and `least`.
double StoredCache::exponentiate_held(const double* x, double least) {
  e_.resize(stored_.original().shape.tokens, 0.0);
  if (key_tokens_.empty()) return least;
  const auto held = std::ssize(key_tokens_);
  const Index first = key_tokens_.front();
  if (key_tokens_.back() + 1 - first == held) {
    return exponentiate(x, e_.data(), first, first + held, least);
  }
  held_x_.clear();
  for (const std::int32_t token : key_tokens_) held_x_.push_back(x[token]);
  held_e_.resize(held_x_.size());
  const double most = exponentiate(held_x_.data(), held_e_.data(), 0, held, least);
  const double* from = held_e_.data();
  for (const std::int32_t token : key_tokens_) e_[token] = *from++;
  return most;
}

std::vector<std::int32_t> StoredCache::plain_tokens(const Sketch& sketch,
                                                    CacheTensor tensor) const {
  if (keeps_all_ && sketch.held) return sketch.held->tokens;
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
  Difference keys;
  Difference values;
  for (const std::int32_t token : plain_tokens(sketch, CacheTensor::kKeys)) {
    keys.add(keys_.row(token), stored_.keys().original.row(token), shape.d);
  }
  for (const std::int32_t token : plain_tokens(sketch, CacheTensor::kValues)) {
    values.add(values_.row(token), stored_.values().original.row(token), shape.dv);
  }
  if (keeps_all_) return {keys.relative(), values.relative()};  // no codec writes what it makes
  std::set<std::int32_t> own_keys;
  std::set<std::int32_t> own_values;
  for (const SketchRow& row : sketch.rows()) {
    if (row.own_key >= 0) own_keys.insert(row.own_key);
    if (row.own_value >= 0) own_values.insert(row.own_value);
  }
  for (const std::int32_t i : own_keys) {
    const std::size_t at = i;
    keys.add(vectors_.own_keys[at].data(), sketch.own_keys[at].data(), shape.d);
  }
  for (const std::int32_t i : own_values) {
    const std::size_t at = i;
    values.add(vectors_.own_values[at].data(), sketch.own_values[at].data(), shape.dv);
  }
  return {keys.relative(), values.relative()};
}

}  // namespace kvbench
