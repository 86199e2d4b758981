// Calibrations: whether a text is one of those that numbers were made from, and what does not fit.
#include "core/calibration.hpp"

#include <doctest/doctest.h>

#include <numeric>

namespace kvbench::test {
namespace calibration_test {

// Keys of two numbers that count up from `first`.
struct Text {
  std::vector<double> keys;

  Text(Index tokens, double first) : keys(static_cast<std::size_t>(2 * tokens)) {
    std::iota(keys.begin(), keys.end(), first);
  }
  Stream stream(int kv_head = 0) const {
    Stream out;
    out.id = {"s", 3, kv_head};
    out.shape.d = 2;
    out.shape.tokens = std::ssize(keys) / 2;
    out.keys = {keys.data(), out.shape.tokens, 2};
    return out;
  }
  KeyMarks marks(Index tokens) const { return key_marks(stream().keys, tokens); }
};

Calibration of_layer(std::vector<KeyMarks> marks) {
  Calibration out;
  out.model = "m";
  out.n_layers = 5;
  CalibratedLayer layer;
  layer.index = 3;
  layer.kv_heads = 1;
  layer.d = 2;
  layer.marks = {std::move(marks)};
  out.layers.push_back(layer);
  return out;
}

TEST_CASE("calibration: a text is known by its keys, whole, cut or longer") {
  const Text own(13, 1.0);
  const Text other(13, 2.0);
  CHECK(own.marks(13).size() == 4);  // 1, 2, 4, 8 tokens
  CHECK(own.marks(16 / 2).size() == 4);
  CHECK(own.marks(7).size() == 3);
  const Calibration calibration = of_layer({other.marks(9), own.marks(9)});
  CHECK(calibration.has_text(own.stream()));
  CHECK(calibration.has_text(other.stream()));
  CHECK(calibration.has_text(Text(40, 1.0).stream()));
  CHECK(calibration.has_text(Text(5, 1.0).stream()));
  CHECK(!calibration.has_text(Text(13, 3.0).stream()));
  CHECK(!calibration.has_text(own.stream(1)));  // a KV head that it lacks
  // Equal tokens at the beginning are not enough: the eighth differs.
  Text late(13, 1.0);
  late.keys[15] += 1.0;
  CHECK(!calibration.has_text(late.stream()));
  late.keys[15] -= 1.0;
  late.keys[16] += 1.0;  // behind the longest prefix that both have
  CHECK(calibration.has_text(late.stream()));
}

TEST_CASE("calibration: what does not fit is named") {
  Calibration calibration = of_layer({});
  StreamShape shape;
  shape.d = 2;
  shape.n_layers = 5;
  const auto why = [&](const char* model, int layer, int kv_heads) {
    return misfit(calibration, model, layer, kv_heads, shape).value_or("");
  };
  CHECK(why("m", 3, 1).empty());
  CHECK(why("", 3, 1).empty());     // arrays have no model
  CHECK(why("m", 4, 100).empty());  // not calibrated
  CHECK(why("n", 3, 1).find("model m, and the dump is of n") != std::string::npos);
  CHECK(why("m", 3, 2).find("KV heads = 1, but it is 2") != std::string::npos);
  CHECK(why("", 3, 2).find("KV heads = 1, but it is 2") != std::string::npos);
  shape.n_layers = 9;
  CHECK(why("m", 3, 1).find("(n_layers) = 5, but it is 9") != std::string::npos);
  CHECK(why("m", 4, 1).find("(n_layers) = 5, but it is 9") != std::string::npos);
  CHECK(why("", 3, 1).empty());  // nor a number of layers
  calibration.n_layers = 0;      // a journal does not say it
  CHECK(why("m", 3, 1).empty());
  calibration.n_layers = shape.n_layers = 5;
  calibration.layers[0].kv_heads = 4;
  CHECK(why("", 3, 1).empty());
  CHECK(why("m", 3, 1).find("KV heads = 4, but it is 1") != std::string::npos);
  calibration.layers[0].kv_heads = 1;
  shape.heads_per_kv = 4;
  CHECK(why("m", 3, 1).find("query heads of a KV head = 1, but it is 4") != std::string::npos);
  shape.heads_per_kv = 1;
  shape.d = 3;
  CHECK(why("m", 3, 1).find("d = 2, but it is 3") != std::string::npos);
  shape.d = 2;
  shape.rope = std::make_shared<const Rope>(Rope{{1.0}, false});
  CHECK(why("m", 3, 1).find("another rotation") != std::string::npos);
  calibration.layers[0].rope = std::make_shared<const Rope>(Rope{{1.0}, true});
  CHECK(why("m", 3, 1).find("another rotation") != std::string::npos);
  calibration.layers[0].rope = std::make_shared<const Rope>(Rope{{1.0}, false});
  CHECK(why("m", 3, 1).empty());
}

}  // namespace calibration_test
}  // namespace kvbench::test
