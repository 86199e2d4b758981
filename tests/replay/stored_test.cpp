// Cells whose cache a codec writes, against answers worked out row by row from what the sketch
// holds.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "kernels/kernels.hpp"
#include "storage/codec_registry.hpp"
#include "support/given.hpp"
#include "support/made_codecs.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace stored_test {

using Vector = std::vector<double>;

Vector vector_of(ConstMatrix matrix, Index row) {
  return {matrix.row(row), matrix.row(row) + matrix.cols};
}

// One tensor as a codec of a test writes it.
class NaiveTensor {
 public:
  NaiveTensor(ConstMatrix original, const Codec* codec, Index prompt)
      : original_(original), codec_(codec), prompt_(prompt) {}

  void hold(const std::set<Index>& tokens) {
    if (codec_ == nullptr) return;
    const std::vector<Index> held(tokens.begin(), tokens.end());
    if (of_prompt_ < 0) {
      of_prompt_ = std::count_if(held.begin(), held.end(), [&](Index j) { return j < prompt_; });
    }
    const Index written = codec_->written(std::ssize(held), of_prompt_);
    for (Index first = 0; first + codec_->group() <= written; first += codec_->group()) {
      std::vector<Vector> block;
      for (Index i = 0; i < codec_->group(); ++i) {
        block.push_back(vector_of(original_, held[first + i]));
      }
      const std::vector<Vector> decoded = round_trip(block);
      for (Index i = 0; i < codec_->group(); ++i) {
        decoded_.emplace(held[first + i], decoded[i]);
      }
    }
  }
  bool is_written(Index token) const { return decoded_.count(token) != 0; }
  Vector read(Index token) const {
    return is_written(token) ? decoded_.at(token) : vector_of(original_, token);
  }
  // A vector of its own, of `token`, -1: of none.
  Vector read_own(const Vector& vector, Index token) const {
    if (codec_ == nullptr || (token >= 0 && !is_written(token))) return vector;
    return round_trip({vector}).front();
  }

 private:
  std::vector<Vector> round_trip(const std::vector<Vector>& block) const {
    const Index width = original_.cols;
    Vector flat;
    for (const Vector& each : block) flat.insert(flat.end(), each.begin(), each.end());
    std::vector<std::byte> code(codec_->bytes());
    const auto rows = std::ssize(block);
    codec_->encode({flat.data(), rows, width}, code.data());
    codec_->decode(code.data(), {flat.data(), rows, width});
    std::vector<Vector> out;
    for (Index i = 0; i < rows; ++i) {
      out.emplace_back(flat.begin() + i * width, flat.begin() + (i + 1) * width);
    }
    return out;
  }

  ConstMatrix original_;
  const Codec* codec_;
  Index prompt_;
  Index of_prompt_ = -1;
  std::map<Index, Vector> decoded_;
};

// The logit of query head g at row `row` and a key in the place of token j; -1: in no place.
double logit(const Stream& stream, int g, Index row, const Vector& key, Index j) {
  const StreamShape& shape = stream.shape;
  double x = shape.scale * std::inner_product(key.begin(), key.end(), stream.query(g, row), 0.0);
  if (shape.softcap > 0.0) x = shape.softcap * std::tanh(x / shape.softcap);
  if (stream.alibi_slopes.empty()) return x;
  REQUIRE(j >= 0);
  return x - stream.alibi_slopes[g] * static_cast<double>(row - j);
}

// Works out each answer of a cell while it is replayed.
class Oracle final : public ReplayWatch {
 public:
  Oracle(const Stream& stream, Index prompt, const Storage& storage, bool keeps_all)
      : stream_(stream),
        keeps_all_(keeps_all),
        key_codec_(storage.keys.create({stream, prompt, 0, CacheTensor::kKeys})),
        value_codec_(storage.values.create({stream, prompt, 0, CacheTensor::kValues})),
        keys_(stream.keys, key_codec_.get(), prompt),
        values_(stream.values, value_codec_.get(), prompt) {}

  void kept(Index row, bool scored, const Sketch& sketch) override {
    std::set<Index> key_tokens;
    std::set<Index> value_tokens;
    const Visible visible = naive_visible(stream_.shape, row);
    for (Index j = visible.first; keeps_all_ && j <= visible.last; ++j) {
      key_tokens.insert(j), value_tokens.insert(j);
    }
    for (const SketchRow& each : sketch.rows()) {
      if (each.token >= 0 && each.keeps_key) key_tokens.insert(each.token);
      if (each.token >= 0 && each.keeps_value) value_tokens.insert(each.token);
    }
    keys_.hold(key_tokens);
    values_.hold(value_tokens);
    count_bytes(sketch, key_tokens, value_tokens);
    key_error = value_error = {0.0, 0.0};
    std::set<Index> plain_keys = keeps_all_ ? key_tokens : std::set<Index>();
    std::set<Index> plain_values = plain_keys;
    for (const SketchRow& each : sketch.rows()) {
      if (each.own_key < 0 && each.keeps_key) plain_keys.insert(each.token);
      if (each.own_value < 0 && each.keeps_value) plain_values.insert(each.token);
    }
    for (const Index j : plain_keys) add(key_error, keys_.read(j), vector_of(stream_.keys, j));
    for (const Index j : plain_values)
      add(value_error, values_.read(j), vector_of(stream_.values, j));
    for (const SketchRow& each : sketch.rows()) {
      if (keeps_all_) break;
      if (each.own_key >= 0)
        add(key_error, key_of(sketch, each), own(sketch.own_keys, each.own_key));
      if (each.own_value >= 0) {
        add(value_error, value_of(sketch, each), own(sketch.own_values, each.own_value));
      }
    }
    if (!scored) return;
    for (int g = 0; g < stream_.shape.heads_per_kv; ++g) answer(row, g, sketch);
  }

  void answered(Index, Index, const Answer& answer) override {
    const Expected& expected = expected_[compared_++];
    REQUIRE(answer.answer.size() == expected.answer.size());
    for (std::size_t k = 0; k < expected.answer.size(); ++k) {
      CHECK(answer.answer[k] == doctest::Approx(expected.answer[k]).epsilon(1e-9));
    }
    REQUIRE(answer.score_error);
    CHECK(*answer.score_error == doctest::Approx(expected.score_error).epsilon(1e-7));
    CHECK(answer.kept_mass.has_value() == expected.of_tokens);
    CHECK(answer.kl_divergence.has_value() == expected.of_tokens);
    if (!expected.of_tokens) return;
    CHECK(answer.kept_mass.value() == doctest::Approx(expected.kept_mass));
    CHECK(answer.kl_divergence.value() ==
          doctest::Approx(std::max(0.0, expected.divergence)).epsilon(1e-6));
  }

  std::size_t compared() const { return compared_; }
  Index bytes() const { return bytes_; }
  // Squares of the error, and of what it is relative to.
  std::pair<double, double> key_error, value_error;

 private:
  struct Expected {
    Vector answer;
    double score_error = 0.0;
    double kept_mass = 0.0;
    double divergence = 0.0;
    bool of_tokens = true;  // no key and value that the method makes
  };

  static const Vector& own(const std::vector<Vector>& vectors, std::int32_t index) {
    return vectors[index];
  }
  Vector key_of(const Sketch& sketch, const SketchRow& row) const {
    return row.own_key < 0 ? keys_.read(row.token)
                           : keys_.read_own(own(sketch.own_keys, row.own_key), row.token);
  }
  Vector value_of(const Sketch& sketch, const SketchRow& row) const {
    if (row.own_value < 0) return values_.read(row.token);
    const Vector& made = own(sketch.own_values, row.own_value);
    return keeps_all_ ? made : values_.read_own(made, row.token);  // all: it stands in the lookup
  }
  static void add(std::pair<double, double>& squares, const Vector& stored,
                  const Vector& original) {
    for (std::size_t k = 0; k < stored.size(); ++k) {
      squares.first += (stored[k] - original[k]) * (stored[k] - original[k]);
      squares.second += original[k] * original[k];
    }
  }

  void count_bytes(const Sketch& sketch, const std::set<Index>& key_tokens,
                   const std::set<Index>& value_tokens) {
    double bytes = static_cast<double>(keeps_all_ ? 0 : sketch.kept_counts().bookkeeping * 4);
    const auto count = [&](const NaiveTensor& tensor, const Codec* codec, Index width, Index token,
                           Index copies) {
      const bool written = codec != nullptr && (token < 0 || tensor.is_written(token));
      bytes += static_cast<double>(copies) *
               (written ? static_cast<double>(codec->bytes()) / static_cast<double>(codec->group())
                        : 2.0 * static_cast<double>(width));
    };
    if (keeps_all_) {
      for (const Index j : key_tokens) count(keys_, key_codec_.get(), stream_.shape.d, j, 1);
      for (const Index j : value_tokens) count(values_, value_codec_.get(), stream_.shape.dv, j, 1);
    }
    for (const SketchRow& row : sketch.rows()) {
      if (keeps_all_) break;
      if (row.keeps_key) count(keys_, key_codec_.get(), stream_.shape.d, row.token, row.copies);
      if (row.keeps_value)
        count(values_, value_codec_.get(), stream_.shape.dv, row.token, row.copies);
    }
    bytes_ = static_cast<Index>(std::llround(bytes));
  }

  void answer(Index row, int g, const Sketch& sketch) {
    const StreamShape& shape = stream_.shape;
    std::map<Index, double> p;  // probabilities of all visible tokens
    const double sink = stream_.sinks.empty() ? 0.0 : std::exp(stream_.sink(g));
    double normalizer = sink;
    const Visible visible = naive_visible(shape, row);
    for (Index j = visible.first; j <= visible.last; ++j) {
      normalizer += p[j] = std::exp(logit(stream_, g, row, vector_of(stream_.keys, j), j));
    }
    for (auto& [j, probability] : p) probability /= normalizer;
    Expected expected;
    expected.answer.assign(shape.dv, 0.0);
    double denominator = sink;
    std::map<Index, double> difference;  // x~ - x of the tokens that are read
    std::map<Index, double> weight;      // w_den e^x~
    std::map<Index, double> den;
    std::set<Index> kept;
    for (const SketchRow& each : sketch.rows()) {
      if (each.head >= 0 && each.head != g) continue;
      if (each.own_key >= 0 || each.own_value >= 0) expected.of_tokens = false;
      const double x = logit(stream_, g, row, key_of(sketch, each), each.token);
      const Vector value = value_of(sketch, each);
      for (std::size_t k = 0; k < value.size(); ++k) {
        expected.answer[k] += each.w_num * std::exp(x) * value[k];
      }
      denominator += each.w_den * std::exp(x);
      if (each.token < 0) continue;
      if (each.own_value < 0 && each.keeps_value) kept.insert(each.token);
      if (each.own_key >= 0 || each.w_den == 0.0) continue;
      difference[each.token] =
          x - logit(stream_, g, row, vector_of(stream_.keys, each.token), each.token);
      weight[each.token] += each.w_den * std::exp(x);
      den[each.token] += each.w_den;
    }
    for (double& z : expected.answer) z /= denominator;
    double mass = 0.0;
    double mean = 0.0;
    for (const auto& [j, each] : difference) mass += p[j], mean += p[j] * each;
    mean /= mass;
    for (const auto& [j, each] : difference) {
      expected.score_error += (each - mean) * (each - mean);
    }
    expected.score_error = std::sqrt(expected.score_error / static_cast<double>(difference.size()));
    for (const auto& [j, each] : weight) {
      const double share = each / denominator;
      expected.divergence += share * std::log(share / p[j]);
    }
    for (const Index j : kept) expected.kept_mass += p[j];
    if (sink > 0.0) {  // an outcome of both distributions, which every method keeps
      const double share = sink / denominator;
      expected.divergence += share * std::log(share / (sink / normalizer));
      expected.kept_mass += sink / normalizer;
    }
    expected_.push_back(expected);
  }

  const Stream& stream_;
  const bool keeps_all_;
  std::unique_ptr<Codec> key_codec_, value_codec_;
  NaiveTensor keys_, values_;
  Index bytes_ = 0;
  std::vector<Expected> expected_;
  std::size_t compared_ = 0;
};

struct Case {
  const char* id;
  Given given;
  bool drops = false;  // tokens, after the prompt
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"exact", {}},
      {"snapkv", {{"budget", count_of(14)}, {"window", count_of(4)}}},
      {"attention_matching", {{"budget", count_of(12)}, {"recent", count_of(4)}}},
      {"uniform", {{"budget", count_of(12)}}},
      {"quest", {{"budget", count_of(8)}, {"page", count_of(4)}}},
      {"sparq", {{"rank", count_of(3)}, {"k", count_of(8)}, {"recent", count_of(4)}}},
      {"knorm", {{"budget", count_of(12)}, {"semantics", word_of("streaming")}}, true},
      {"cam", {{"budget", count_of(14)}}, true},
      {"d2o", {{"budget", count_of(14)}}, true},
  };
  return all;
}

struct Codecs {
  const char* name;
  CodecDescription keys, values;
  bool groups = false;
  bool groups_values = false;
};

const std::vector<Codecs>& codecs() {
  static const std::vector<Codecs> all = {
      {"both on arrival", step_codec(0.25, 1, 3, on_arrival()), step_codec(0.5, 1, 5, on_arrival()),
       false},
      {"both late", step_codec(0.25, 1, 3, late(5)), step_codec(0.5, 1, 5, late(7)), false},
      {"keys on arrival, values late", step_codec(0.25, 1, 3, on_arrival()),
       step_codec(0.5, 1, 5, late(3)), false},
      {"of the prompt alone", step_codec(0.25, 1, 3, of_the_prompt()),
       step_codec(0.5, 1, 5, of_the_prompt()), false},
      {"keys in groups", step_codec(0.25, 2, 3, in_steps(4)), step_codec(0.5, 1, 5, late(5)), true,
       false},
      {"both in groups", step_codec(0.25, 2, 3, in_steps(4)), step_codec(0.5, 4, 5, in_steps(4)),
       true, true},
  };
  return all;
}

bool goes_with(const Case& method, const Codecs& stored) {
  if (method.drops && stored.groups) return false;
  // It makes values, which a codec of groups cannot write.
  return std::string(method.id) != "attention_matching" || !stored.groups_values;
}

void compare_with_oracle(const Stream& stream, const std::vector<Index>& rows, const Case& method,
                         const Codecs& stored) {
  const Index prompt = stream.shape.causal ? 24 : stream.shape.tokens;
  const std::string name = std::string(method.id) + ", " + stored.name;
  CAPTURE(name);
  const AlgorithmDescription& algorithm = algorithm_named(method.id);
  const Params params = params_for(algorithm, method.given);
  const auto storage = std::make_shared<const Storage>(
      Storage{{&stored.keys, Params{}}, {&stored.values, Params{}}});
  Oracle oracle(stream, prompt, *storage, algorithm.never_evicts(params));
  const ReplayCell cell{&algorithm, params, 3, nullptr, &oracle, storage};
  CellResult result;
  replay(stream, {.prompt = prompt, .rows = rows}, {cell}, cpu_kernels(),
         [&](std::size_t, CellResult&& done) { result = std::move(done); });
  REQUIRE_MESSAGE(!result.failed, result.reason);
  CHECK(oracle.compared() == 2 * rows.size());
  CHECK(result.memory.bytes - result.memory.lookup_bytes == oracle.bytes());
  CHECK(result.memory.shared_bytes == 14);
  const auto relative = [](const std::pair<double, double>& squares) {
    return std::sqrt(squares.first / squares.second);
  };
  CHECK(*result.metrics["errors.key_error"] ==
        doctest::Approx(relative(oracle.key_error)).epsilon(1e-9));
  CHECK(*result.metrics["errors.value_error"] ==
        doctest::Approx(relative(oracle.value_error)).epsilon(1e-9));
}

TEST_CASE("answers, errors and bytes of stored caches are those of a program that works them out") {
  for (const bool capped : {false, true}) {
    CAPTURE(capped);
    const auto owned = make_stream({.tokens = 40,
                                    .d = 8,
                                    .dv = 6,
                                    .heads_per_kv = 2,
                                    .softcap = capped ? 3.0 : 0.0,
                                    .seed = 11});
    for (const Codecs& stored : codecs()) {
      for (const Case& method : cases()) {
        if (!goes_with(method, stored)) continue;
        compare_with_oracle(owned->stream, {24, 25, 30, 31, 38, 39}, method, stored);
      }
    }
  }
}

TEST_CASE("the same with sinks, a bias by distance, chunks, and rows that see every token") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 40, .d = 8, .dv = 6, .heads_per_kv = 2, .seed = 11, .sinks = true},
      {.tokens = 40, .d = 8, .dv = 6, .heads_per_kv = 2, .softcap = 3, .seed = 11, .alibi = true},
      {.tokens = 40, .d = 8, .dv = 6, .heads_per_kv = 2, .seed = 11, .sinks = true, .alibi = true},
      {.tokens = 40, .d = 8, .dv = 6, .heads_per_kv = 2, .seed = 11, .chunk = 15},
      {.tokens = 40, .d = 8, .dv = 6, .heads_per_kv = 2, .seed = 11, .causal = false},
      {.tokens = 40,
       .d = 8,
       .dv = 6,
       .heads_per_kv = 2,
       .seed = 11,
       .sinks = true,
       .causal = false}};
  for (const StreamSpec& spec : specs) {
    CAPTURE(spec.sinks);
    CAPTURE(spec.alibi);
    CAPTURE(spec.chunk);
    CAPTURE(spec.causal);
    const auto owned = make_stream(spec);
    const std::vector<Index> rows =
        spec.causal ? std::vector<Index>{24, 25, 30, 31, 38, 39} : std::vector<Index>{0, 7, 25, 39};
    std::set<std::string> ran;
    for (const Codecs& stored : codecs()) {
      for (const Case& method : cases()) {
        if (!goes_with(method, stored) || (stored.groups && spec.chunk > 0)) continue;
        const AlgorithmDescription& algorithm = algorithm_named(method.id);
        const Index prompt = spec.causal ? 24 : spec.tokens;
        const Params params = params_for(algorithm, method.given);
        if (reason_to_skip(algorithm, params, owned->stream.shape, prompt)) continue;
        compare_with_oracle(owned->stream, rows, method, stored);
        ran.insert(method.id);
      }
    }
    CHECK(ran.count("exact") == 1);
    CHECK(ran.size() >= 3);
  }
}

TEST_CASE("the same on a sliding layer, where what leaves the window is dropped") {
  const auto owned =
      make_stream({.tokens = 60, .d = 8, .dv = 6, .heads_per_kv = 2, .window = 17, .seed = 13});
  std::size_t compared = 0;
  for (const Codecs& stored : codecs()) {
    if (stored.groups) continue;
    for (const Case& method : cases()) {
      const AlgorithmDescription& algorithm = algorithm_named(method.id);
      const Params params = params_for(algorithm, method.given);
      if (reason_to_skip(algorithm, params, owned->stream.shape, 24)) continue;
      compare_with_oracle(owned->stream, {24, 25, 30, 31, 45, 58, 59}, method, stored);
      ++compared;
    }
  }
  CHECK(compared >= 4 * 4);
}

TEST_CASE("the same where more rows are answered than have their logits at one time") {
  // 2 * 106 queries; 96 are made ready together.
  const auto owned = make_stream({.tokens = 130, .d = 4, .dv = 4, .heads_per_kv = 2, .seed = 12});
  for (const Codecs& stored : codecs()) {
    for (const Case& method : cases()) {
      if (!goes_with(method, stored)) continue;
      compare_with_oracle(owned->stream, decode_rows(owned->stream, 24), method, stored);
    }
  }
}

TEST_CASE("a storage that loses nothing leaves every number but the bytes") {
  const auto owned = make_stream({.tokens = 40, .d = 8, .dv = 6, .heads_per_kv = 2, .window = 30});
  const CodecDescription lossless = step_codec(0x1p-900, 1, 0, on_arrival());
  const auto storage =
      std::make_shared<const Storage>(Storage{{&lossless, Params{}}, {&lossless, Params{}}});
  for (const Case& method : cases()) {
    if (std::string(method.id) == "quest") continue;  // not on sliding layers
    CAPTURE(method.id);
    const AlgorithmDescription& algorithm = algorithm_named(method.id);
    const Params params = params_for(algorithm, method.given);
    const ReplayCell plain{&algorithm, params, 3};
    const ReplayCell stored{&algorithm, params, 3, nullptr, nullptr, storage};
    std::vector<CellResult> results(2);
    replay(owned->stream, {.prompt = 24, .rows = decode_rows(owned->stream, 24)}, {plain, stored},
           cpu_kernels(),
           [&](std::size_t index, CellResult&& done) { results[index] = std::move(done); });
    REQUIRE(!results[0].failed);
    REQUIRE_MESSAGE(!results[1].failed, results[1].reason);
    for (const MetricNumber& number : metric_numbers()) {
      CAPTURE(number.path);
      if (number.path.starts_with("errors.score_error") || number.path == "errors.key_error" ||
          number.path == "errors.value_error") {
        CHECK(!results[0].metrics[number.path]);
        CHECK(results[1].metrics[number.path] == 0.0);
      } else {
        CHECK(results[0].metrics[number.path] == results[1].metrics[number.path]);
      }
    }
    CHECK(results[0].memory.tokens == results[1].memory.tokens);
    CHECK(results[0].traffic.tokens_read_mean == results[1].traffic.tokens_read_mean);
    CHECK(results[0].traffic.density == results[1].traffic.density);
  }
}

}  // namespace stored_test
}  // namespace kvbench::test
