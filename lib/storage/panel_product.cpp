#include "storage/panel_product.hpp"

#include <algorithm>
#include <array>

#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"

namespace kvbench {
namespace {

static_assert(Panels::kWidth == Lanes::kCount);

// Rows x panels whose sums stay in registers.
constexpr int kRows = 6;
#if defined(__AVX512F__)
constexpr int kPanels = 4;
#else
constexpr int kPanels = 1;
#endif

// `columns`: how many of the panels' are wanted, some of the last panel's at least.
template <int Rows, int PanelCount, class TermOf>
void block(const Factors& x, Index terms, const TermOf& term_of, const double* panels, Index size,
           double* out, Index stride, Index columns) {
  Lanes sums[Rows * PanelCount];
  unrolled<Rows * PanelCount>([&](auto i) { sums[i] = Lanes::all(0.0); });
  for (Index j = 0; j < terms; ++j) {
    const Index k = term_of(j);
    Lanes right[PanelCount];
    unrolled<PanelCount>(
        [&](auto p) { right[p] = Lanes::load(panels + p * size + k * Lanes::kCount); });
    const double* left = x.data + k * x.term;
    unrolled<Rows * PanelCount>([&](auto i) {
      constexpr int kRow = i / PanelCount;
      sums[i] = Lanes::fma(Lanes::all(left[kRow * x.row]), right[i % PanelCount], sums[i]);
    });
  }
  unrolled<Rows * PanelCount>([&](auto i) {
    constexpr Index kFirst = i % PanelCount * Lanes::kCount;
    double* to = out + i / PanelCount * stride + kFirst;
    if (columns >= kFirst + Lanes::kCount) {
      sums[i].store(to);
    } else {
      std::array<double, Lanes::kCount> all;
      sums[i].store(all.data());
      std::copy_n(all.begin(), columns - kFirst, to);
    }
  });
}

template <int PanelCount, class TermOf>
void rows_of(const Factors& x, Index terms, const TermOf& term_of, const double* panels, Index size,
             MutableMatrix out, Index first) {
  using Block =
      void (*)(const Factors&, Index, const TermOf&, const double*, Index, double*, Index, Index);
  static constexpr std::array<Block, kRows> kBlocks = {
      block<1, PanelCount, TermOf>, block<2, PanelCount, TermOf>, block<3, PanelCount, TermOf>,
      block<4, PanelCount, TermOf>, block<5, PanelCount, TermOf>, block<6, PanelCount, TermOf>};
  for (Index i = 0; i < out.rows; i += kRows) {
    const std::size_t rows = std::min<Index>(kRows, out.rows - i);
    kBlocks[rows - 1]({x.data + i * x.row, x.row, x.term}, terms, term_of, panels, size,
                      out.row(i) + first, out.stride, out.cols - first);
  }
}

template <class TermOf>
void multiply_terms(const Factors& x, Index terms, const TermOf& term_of, const Panels& panels,
                    MutableMatrix out) {
  Index first = 0;
  // All columns of kPanels panels, or some of the last one's.
  for (; first + (kPanels - 1) * Panels::kWidth < out.cols; first += kPanels * Panels::kWidth) {
    rows_of<kPanels>(x, terms, term_of, panels.panel(first / Panels::kWidth), panels.panel_size(),
                     out, first);
  }
  for (; first < out.cols; first += Panels::kWidth) {
    rows_of<1>(x, terms, term_of, panels.panel(first / Panels::kWidth), panels.panel_size(), out,
               first);
  }
}

}  // namespace

void multiply(const Factors& x, Index terms, const Panels& panels, MutableMatrix out) {
  multiply_terms(x, terms, [](Index j) { return j; }, panels, out);
}

void multiply(const Factors& x, const std::vector<Index>& terms, const Panels& panels,
              MutableMatrix out) {
  const Index* at = terms.data();
  multiply_terms(x, std::ssize(terms), [at](Index j) { return at[j]; }, panels, out);
}

}  // namespace kvbench
