#include "storage/panel_product.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "storage/dense_map.hpp"

namespace kvbench::test {
namespace panel_product_test {

double number(std::uint32_t i, std::uint32_t j) { return philox_uniform53({3, 4}, i, j, 0) - 0.5; }

std::vector<double> numbers(Index rows, Index columns, std::uint32_t of) {
  std::vector<double> out;
  for (Index i = 0; i < rows * columns; ++i)
    out.push_back(number(of, static_cast<std::uint32_t>(i)));
  return out;
}

// One chain, from the first term up.
double chain(ConstMatrix x, Index i, ConstMatrix a, Index c, const std::vector<Index>& terms) {
  double sum = 0.0;
  for (const Index k : terms) sum = std::fma(x(i, k), a(k, c), sum);
  return sum;
}

std::vector<Index> first_terms(Index count) {
  std::vector<Index> out;
  for (Index k = 0; k < count; ++k) out.push_back(k);
  return out;
}

constexpr double kUntouched = 7.25;

TEST_CASE("products of panels: each number is the chain that it is alone") {
  for (const Index columns : {1, 7, 8, 9, 31, 32, 33, 64, 72}) {
    const Index terms = 13;
    const std::vector<double> a = numbers(terms, columns, 1);
    const ConstMatrix matrix(a.data(), terms, columns);
    const Panels panels(terms, columns, [&](Index k, Index c) { return matrix(k, c); });
    for (const Index rows : {1, 2, 5, 6, 7, 13}) {
      CAPTURE(columns);
      CAPTURE(rows);
      const std::vector<double> some = numbers(rows, terms + 2, 2);
      const ConstMatrix x(some.data(), rows, terms, terms + 2);
      // The first of the columns alone, and what is next to them stays.
      for (const Index wanted : {columns, (columns + 1) / 2}) {
        const Index stride = columns + 1;
        std::vector<double> out(rows * stride, kUntouched);
        const std::vector<Index> list = {0, 3, 4, 12};
        for (const bool listed : {false, true}) {
          const MutableMatrix to(out.data(), rows, wanted, stride);
          if (listed) {
            multiply({x.data, x.stride, 1}, list, panels, to);
          } else {
            multiply({x.data, x.stride, 1}, terms, panels, to);
          }
          for (Index i = 0; i < rows; ++i) {
            for (Index c = 0; c < wanted; ++c) {
              CHECK(to(i, c) == chain(x, i, matrix, c, listed ? list : first_terms(terms)));
            }
            for (Index c = wanted; c < stride; ++c) {
              CHECK(out[i * stride + c] == kUntouched);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a dense map: forth and back, of all and of some, by rows and across") {
  const Index m = 20;
  const Index d = 11;
  const Index n = 9;
  const std::vector<double> a = numbers(m, d, 5);
  const DenseMap map(m, d, [&] { return numbers(m, d, 5); });
  const ConstMatrix rows(a.data(), m, d);
  const auto by_channel = [&](Index k, Index i) { return rows(i, k); };
  std::vector<double> turned;
  for (Index k = 0; k < d; ++k) {
    for (Index i = 0; i < m; ++i) turned.push_back(by_channel(k, i));
  }
  const ConstMatrix channels(turned.data(), d, m);
  const std::vector<double> x = numbers(n, d, 6);
  const std::vector<double> y = numbers(n, m, 7);
  const ConstMatrix vectors(x.data(), n, d);
  const ConstMatrix images(y.data(), n, m);
  const std::vector<Index> some = {1, 2, 7, 10};

  std::vector<double> out(n * m);
  const MutableMatrix forth(out.data(), n, m);
  map.apply(vectors, forth);
  for (Index t = 0; t < n; ++t) {
    for (Index i = 0; i < m; ++i) {
      CHECK(forth(t, i) == chain(vectors, t, channels, i, first_terms(d)));
    }
  }
  std::vector<double> turned_out(n * m);
  const MutableMatrix across(turned_out.data(), m, n);
  map.apply_across(vectors, across);
  for (Index t = 0; t < n; ++t) {
    for (Index i = 0; i < m; ++i) CHECK(across(i, t) == forth(t, i));
  }
  const MutableMatrix few(out.data(), n, 5);
  map.apply(vectors, some, few);
  for (Index t = 0; t < n; ++t) {
    for (Index i = 0; i < 5; ++i) CHECK(few(t, i) == chain(vectors, t, channels, i, some));
  }

  std::vector<double> returned(n * d);
  const MutableMatrix back(returned.data(), n, d);
  map.apply_transposed(images, back);
  for (Index t = 0; t < n; ++t) {
    for (Index k = 0; k < d; ++k) CHECK(back(t, k) == chain(images, t, rows, k, first_terms(m)));
  }
  std::vector<double> of_some(static_cast<std::size_t>(n) * some.size());
  const MutableMatrix part(of_some.data(), n, std::ssize(some));
  map.apply_transposed(images, some, part);
  for (Index t = 0; t < n; ++t) {
    for (std::size_t c = 0; c < some.size(); ++c) {
      CHECK(part(t, static_cast<Index>(c)) == back(t, some[c]));
    }
  }
  // The first rows alone.
  map.apply_transposed({y.data(), n, 6, m}, back);
  for (Index t = 0; t < n; ++t) {
    for (Index k = 0; k < d; ++k) CHECK(back(t, k) == chain(images, t, rows, k, first_terms(6)));
  }
  map.apply_transposed_across(across, back);
  map.apply(vectors, forth);
  for (Index t = 0; t < n; ++t) {
    for (Index k = 0; k < d; ++k) CHECK(back(t, k) == chain(forth, t, rows, k, first_terms(m)));
  }
}

}  // namespace panel_product_test
}  // namespace kvbench::test
