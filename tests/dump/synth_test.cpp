#include "synth/synth.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "synth/synth_kinds.hpp"

using namespace kvbench;

namespace synth_test {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

SynthOptions small(const std::string& kind) {
  SynthOptions options;
  options.kind = kind;
  options.tokens = 200;
  options.d = 16;
  options.kv_heads = 2;
  options.heads_per_kv = 2;
  return options;
}

double distance(const double* a, const double* b, Index count) {
  double length = 0.0;
  for (Index c = 0; c < count; ++c) length = std::hypot(length, a[c] - b[c]);
  return length;
}

double norm(const double* x, Index count) {
  return distance(x, std::vector<double>(static_cast<std::size_t>(count)).data(), count);
}

// Softmax of row i of query head g.
std::vector<double> probabilities(const Stream& s, int g, Index i) {
  std::vector<double> p(i + 1, 0.0);
  double sum = 0.0;
  for (Index j = s.shape.first_visible(i); j <= i; ++j) {
    double x = 0.0;
    for (Index c = 0; c < s.shape.d; ++c) x += s.query(g, i)[c] * s.keys(j, c);
    x *= s.shape.scale;
    if (s.shape.softcap > 0.0) x = s.shape.softcap * std::tanh(x / s.shape.softcap);
    p[j] = std::exp(x);
    sum += p[j];
  }
  for (double& value : p) value /= sum;
  return p;
}

TEST_CASE(
    "a seed makes the same bytes, and other draws with another seed, head, layer or sequence") {
  const TemporaryFolder folder;
  for (const SynthKind& kind : synth_kinds()) {
    CAPTURE(kind.name);
    SynthOptions options = small(kind.name);
    options.layers = 2;
    options.sequences = 2;
    synthesize(options, folder.file("a.h5"));
    synthesize(options, folder.file("b.h5"));
    CHECK(bytes_of(folder.file("a.h5")) == bytes_of(folder.file("b.h5")));
    const std::string fingerprint = Dump(folder.file("a.h5")).fingerprint();
    options.seed = 1;
    synthesize(options, folder.file("b.h5"));
    CHECK(Dump(folder.file("b.h5")).fingerprint() != fingerprint);
    const Dump dump(folder.file("a.h5"));
    std::set<UnfilledDoubles> keys;
    for (const char* sequence : {"0", "1"}) {
      for (const int layer : {0, 1}) {
        for (const int head : {0, 1}) {
          const auto data = dump.read_stream(sequence, layer, head);
          CHECK(keys.insert(data->keys).second);
          CHECK(data->queries[0] != data->queries[1]);
        }
      }
    }
  }
}

TEST_CASE("the same draws on every host") {
  // Rounded to float16, the draws do not depend on the last bit of a logarithm or cosine. Expected:
  // Philox 4x32-10 written from its paper in Python (and held against its known answer for zeros),
  // xxhash 3, struct's float16. Row i: words w at counter (i, 0, 0, 0), key
  // XXH64("0/S/synth/gaussian/k") with S = XXH64("0\n0\n0") in decimal; u, v the top 52 bits of
  // (w0, w1), (w2, w3) as (2 x + 1) 2^-53; r = sqrt(-2 ln u): r cos(2 pi v), r sin(2 pi v).
  const TemporaryFolder folder;
  SynthOptions options = small("gaussian");
  options.tokens = 2;
  options.d = 2;
  synthesize(options, folder.file("a.h5"));
  CHECK(Dump(folder.file("a.h5")).read_stream("0", 0, 0)->keys ==
        UnfilledDoubles{1.13671875, 0.250732421875, 0.95458984375, -0.73876953125});
}

TEST_CASE("options reach the dump") {
  const TemporaryFolder folder;
  for (const char* dtype : {"float16", "bfloat16", "float32", "float64"}) {
    SynthOptions options = small("gaussian");
    options.dtype = dtype;
    options.dv = 5;
    options.query_rows = 30;
    options.out_rows = 8;
    options.prompt_tokens = 170;
    options.scale = 0.3;
    options.window = 50;
    options.softcap = 20.0;
    options.gzip = 3;
    options.chunk_rows = 64;
    synthesize(options, folder.file("a.h5"));
    const Dump dump(folder.file("a.h5"));
    const SequenceInfo& sequence = dump.info().sequences.at(0);
    CHECK(sequence.prompt_tokens == 170);
    const LayerInfo& layer = sequence.layers.at(0);
    CHECK(layer.dtype == dtype);
    CHECK(layer.tokens == 200);
    CHECK(layer.query_rows == 30);
    CHECK(layer.query_heads == 4);
    CHECK(layer.kv_heads == 2);
    CHECK(layer.d == 16);
    CHECK(layer.dv == 5);
    CHECK(layer.out_rows == 8);
    CHECK(layer.scale == 0.3);
    CHECK(layer.window == 50);
    CHECK(layer.softcap == 20.0);
    CHECK(layer.rope == nullptr);
  }
}

TEST_CASE("normal draws are normal") {
  const TemporaryFolder folder;
  SynthOptions options = small("gaussian");
  options.tokens = 20000;
  options.query_rows = 1;
  options.dtype = "float64";
  synthesize(options, folder.file("a.h5"));
  const auto data = Dump(folder.file("a.h5")).read_stream("0", 0, 0);
  const auto n = static_cast<double>(data->keys.size());
  double sum = 0.0, squares = 0.0, fourths = 0.0, pairs = 0.0;
  for (std::size_t i = 0; i < data->keys.size(); ++i) {
    const double x = data->keys[i];
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    if (i > 0) pairs += x * data->keys[i - 1];
  }
  // Five standard deviations each.
  CHECK(std::abs(sum / n) < 5.0 / std::sqrt(n));
  CHECK(std::abs(squares / n - 1.0) < 5.0 * std::sqrt(2.0 / n));
  CHECK(std::abs(fourths / n - 3.0) < 5.0 * std::sqrt(96.0 / n));
  CHECK(std::abs(pairs / n) < 5.0 / std::sqrt(n));
}

TEST_CASE("stored outputs are the attention of the stored rows") {
  const TemporaryFolder folder;
  for (const SynthKind& kind : synth_kinds()) {
    for (const Index window : {0, 40}) {
      CAPTURE(kind.name);
      SynthOptions options = small(kind.name);
      options.dtype = "float64";
      options.window = window;
      options.softcap = 15.0;
      options.query_rows = 20;
      synthesize(options, folder.file("a.h5"));
      const Dump dump(folder.file("a.h5"));
      const auto data = dump.read_stream("0", 0, 1);
      const Stream& s = data->stream;
      for (int g = 0; g < 2; ++g) {
        const auto out = dump.read_out("0", 0, 2 + g);
        REQUIRE(out.size() == 20 * 16);
        double worst = 0.0;
        for (Index r = 0; r < 20; ++r) {
          const auto p = probabilities(s, g, 180 + r);
          for (Index c = 0; c < 16; ++c) {
            double z = 0.0, size = 0.0;
            for (std::size_t j = 0; j < p.size(); ++j) {
              z += p[j] * s.values(static_cast<Index>(j), c);
              size += p[j] * std::abs(s.values(static_cast<Index>(j), c));
            }
            worst = std::max(worst, std::abs(z - out[r * 16 + c]) / size);
          }
        }
        CHECK(worst < 1e-12);
      }
    }
  }
}

TEST_CASE("focused queries attend to the first cluster, whose values alone are large") {
  const TemporaryFolder folder;
  SynthOptions options = small("focused");
  options.clusters = 8;
  options.delta = 0.1;
  options.dtype = "float32";
  synthesize(options, folder.file("a.h5"));
  const auto data = Dump(folder.file("a.h5")).read_stream("0", 0, 0);
  const Stream& stream = data->stream;
  const Index d = stream.shape.d;
  Index members = 0;
  std::vector<bool> first(stream.shape.tokens);
  for (Index j = 0; j < stream.shape.tokens; ++j) {
    // Token 0 opens the first cluster.
    first[j] = distance(stream.keys.row(0), stream.keys.row(j), d) <= options.delta;
    members += first[j] ? 1 : 0;
  }
  CHECK(members > 1);
  CHECK(members < stream.shape.tokens / 2);
  for (Index row = stream.shape.first_query; row < stream.shape.tokens; row += 7) {
    double inside = 0.0;
    double all = 0.0;
    for (Index j = 0; j <= row; ++j) {
      double dot = 0.0;
      for (Index c = 0; c < d; ++c) dot += stream.query(0, row)[c] * stream.keys.row(j)[c];
      const double e = std::exp(stream.shape.scale * dot);
      all += e;
      if (first[j]) inside += e;
    }
    CHECK(inside > 0.8 * all);
  }
  const Index dv = stream.shape.dv;
  for (Index j = 0; j < stream.shape.tokens; ++j) {
    const double length = norm(stream.values.row(j), dv) / std::sqrt(static_cast<double>(dv));
    if (first[j]) {
      CHECK(std::abs(length - 1.0) < 0.15);
    } else {
      CHECK(length < 0.15);
    }
  }
}

TEST_CASE("clusterable keys are: m clusters, no diameter above delta, all else further apart") {
  const TemporaryFolder folder;
  for (const auto& [dtype, m, delta, d] :
       {std::tuple<std::string, Index, double, Index>{"float16", 12, 1.0, 16},
        {"float16", 1, 0.5, 16},
        {"float32", 50, 0.01, 16},
        {"float32", 7, 3.0, 1},
        {"bfloat16", 5, 2.0, 8},
        {"float64", 200, 1e-9, 4}}) {
    CAPTURE(dtype);
    CAPTURE(m);
    SynthOptions options = small("clusterable");
    options.dtype = dtype;
    options.clusters = m;
    options.delta = delta;
    options.d = d;
    synthesize(options, folder.file("a.h5"));
    const Dump dump(folder.file("a.h5"));
    for (const int head : {0, 1}) {
      const auto data = dump.read_stream("0", 0, head);
      const ConstMatrix& keys = data->stream.keys;
      // The components of "at most delta apart"; planted clusters are its cliques.
      std::vector<Index> label(200, -1);
      Index count = 0;
      bool cliques = true;
      for (Index j = 0; j < 200; ++j) {
        for (Index i = 0; i < j; ++i) {
          const bool near = distance(keys.row(i), keys.row(j), d) <= delta;
          if (near && label[j] < 0) {
            label[j] = label[i];
          }
        }
        if (label[j] < 0) label[j] = count++;
        for (Index i = 0; i < j; ++i) {
          const bool near = distance(keys.row(i), keys.row(j), d) <= delta;
          cliques = cliques && near == (label[i] == label[j]);
        }
      }
      CHECK(cliques);
      CHECK(count == m);
      CHECK(norm(data->keys.data(), 200 * d) > 0.0);
      if (m < 200) CHECK(std::set<double>(data->keys.begin(), data->keys.end()).size() > 20);
    }
  }
  SynthOptions options = small("clusterable");
  options.delta = 1e-6;
  CHECK(says(errors_of([&] { synthesize(options, folder.file("b.h5")); }),
             {"--delta", "float16", "float32"}));
  CHECK_FALSE(std::filesystem::exists(folder.file("b.h5")));
}

TEST_CASE("heavy hitters receive most attention") {
  const TemporaryFolder folder;
  SynthOptions options = small("heavy_hitters");
  options.tokens = 1000;
  options.clusters = 5;
  options.d = 64;
  synthesize(options, folder.file("a.h5"));
  const Dump dump(folder.file("a.h5"));
  for (const int head : {0, 1}) {
    const auto data = dump.read_stream("0", 0, head);
    std::vector<double> received(1000, 0.0);
    for (Index i = 900; i < 1000; ++i) {
      const auto p = probabilities(data->stream, 0, i);
      for (std::size_t j = 0; j < p.size(); ++j) received[j] += p[j] / 100.0;
    }
    CHECK(received[0] > 0.01);
    std::sort(received.rbegin(), received.rend());
    double most = 0.0;
    for (std::size_t j = 0; j < 5; ++j) most += received[j];
    CHECK(most > 0.8);
    CHECK(received[4] > 10.0 * received[5]);
  }
}

TEST_CASE("rope keys and queries are rotated, and become a few contents when rotated back") {
  const TemporaryFolder folder;
  SynthOptions options = small("rope");
  options.clusters = 4;
  options.query_rows = 120;
  options.dtype = "float32";
  options.theta = 500.0;
  synthesize(options, folder.file("a.h5"));
  const Dump dump(folder.file("a.h5"));
  CHECK(dump.info().sequences[0].layers[0].rope != nullptr);
  const auto data = dump.read_stream("0", 0, 1);
  std::vector<double> inv_freq(8);
  {
    const hdf5::Handle file = hdf5::open_file(folder.file("a.h5"), hdf5::Access::kReadUnlocked);
    const hid_t f = file.get();
    const hdf5::Handle dataset(H5Dopen2(f, "/rope/inv_freq", H5P_DEFAULT));
    hdf5::check(
        H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, inv_freq.data()));
    const hdf5::Handle rope = hdf5::open_group(f, "/rope");
    CHECK(hdf5::read_number(rope.get(), "theta") == 500.0);
    CHECK(hdf5::read_string(rope.get(), "layout") == "half");
    CHECK(hdf5::read_number(rope.get(), "attention_scaling") == 1.0);
  }
  for (std::size_t c = 0; c < 8; ++c) {
    CHECK(inv_freq[c] == doctest::Approx(std::pow(500.0, -static_cast<double>(c) / 8.0)));
  }
  const auto contents = [&](const ConstMatrix& rows, Index first, bool back) {
    std::vector<std::vector<double>> found;
    for (Index i = 0; i < rows.rows; ++i) {
      std::vector<double> x(rows.row(i), rows.row(i) + 16);
      for (std::size_t c = 0; c < 8 && back; ++c) {
        const double angle = -static_cast<double>(first + i) * inv_freq[c];
        const double a = x[c], b = x[c + 8];
        x[c] = a * std::cos(angle) - b * std::sin(angle);
        x[c + 8] = a * std::sin(angle) + b * std::cos(angle);
      }
      const bool known = std::any_of(found.begin(), found.end(), [&](const auto& y) {
        return distance(x.data(), y.data(), 16) < 1.5;
      });
      if (!known) found.push_back(x);
    }
    return found.size();
  };
  CHECK(contents(data->stream.keys, 0, true) == 4);
  CHECK(contents(data->stream.keys, 0, false) > 20);
  CHECK(contents(data->stream.queries[1], 80, true) == 4);
  CHECK(contents(data->stream.queries[1], 80, false) > 20);
  options.d = 15;
  CHECK(
      says(errors_of([&] { synthesize(options, folder.file("b.h5")); }), {"--d: ", "even", "15"}));
}

TEST_CASE("adversarial heads hold ties, zeros and huge and tiny norms, all finite") {
  const TemporaryFolder folder;
  for (const char* dtype : {"float16", "bfloat16", "float64"}) {
    SynthOptions options = small("adversarial");
    options.dtype = dtype;
    synthesize(options, folder.file("a.h5"));
    const auto data =
        Dump(folder.file("a.h5")).read_stream("0", 0, 0);  // refuses what is not finite
    const Stream& s = data->stream;
    std::map<std::vector<double>, int> keys;
    int zero_values = 0, huge_values = 0, huge_keys = 0, tiny_keys = 0, opposite = 0;
    for (Index j = 0; j < 200; ++j) {
      ++keys[std::vector<double>(s.keys.row(j), s.keys.row(j) + 16)];
      zero_values += norm(s.values.row(j), 16) == 0.0;
      huge_values += norm(s.values.row(j), 16) > 1e4;
      const double length = norm(s.keys.row(j), 16);
      huge_keys += length > 1e4;
      const double largest =
          std::abs(*std::max_element(s.keys.row(j), s.keys.row(j) + 16,
                                     [](double a, double b) { return std::abs(a) < std::abs(b); }));
      tiny_keys += largest > 0.0 && largest < 1e-5;
      for (Index i = 0; i < j; ++i) {
        bool negated = largest > 0.0;
        for (Index c = 0; c < 16; ++c) negated = negated && s.keys(i, c) == -s.keys(j, c);
        opposite += negated;
      }
    }
    CHECK(zero_values == 25);
    CHECK(huge_values == 25);
    CHECK(huge_keys == 25);
    CHECK(tiny_keys == 25);
    CHECK(keys.at(std::vector<double>(16, 0.0)) >= 25);
    CHECK(std::count_if(keys.begin(), keys.end(), [](const auto& k) { return k.second == 2; }) ==
          25);
    CHECK(opposite >= 50);
    double largest_logit = 0.0;
    for (Index j = 0; j < 200; ++j) {
      double x = 0.0;
      for (Index c = 0; c < 16; ++c) x += s.query(0, 199)[c] * s.keys(j, c);
      largest_logit = std::max(largest_logit, std::abs(x * s.shape.scale));
    }
    CHECK(largest_logit > 1e3);
  }
}

TEST_CASE("the smallest dumps: one token, one dimension") {
  const TemporaryFolder folder;
  for (const SynthKind& kind : synth_kinds()) {
    SynthOptions options;
    options.kind = kind.name;
    options.tokens = 1;
    options.d = kind.name == "rope" ? 2 : 1;
    options.kv_heads = options.heads_per_kv = 1;
    synthesize(options, folder.file("a.h5"));
    const auto data = Dump(folder.file("a.h5")).read_stream("0", 0, 0);
    CHECK(data->stream.shape.tokens == 1);
  }
}

}  // namespace synth_test
