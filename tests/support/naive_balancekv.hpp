// BalanceKV, in theory (merge-and-reduce by buckets) and as evaluated (halvings in blocks), token
// by token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/stream.hpp"
#include "support/naive_walk.hpp"

namespace kvbench::test {

// A tree of cells; which cells are reduced at a count is spelled out, not looped.
struct NaiveMergeAndReduce {
  Index t = 2;
  Index T = 1;
  Index count = 0;
  std::vector<std::vector<Index>> cells;  // [T + 1]

  NaiveMergeAndReduce(Index t_, Index T_) : t(t_), T(T_), cells(static_cast<std::size_t>(T_) + 1) {}

  // `halve(cell, level)` keeps a part of a cell.
  using Halve = std::function<std::vector<Index>(const std::vector<Index>&, Index level)>;
  void add(Index token, const Halve& halve);
};

struct NaiveBalanceKv {
  Index t = 2;
  Index T = 1;
  Real epsilon = 0.1L;
  Real c = 1;
  Real r_key = 1;
  Real r_erase = 1;
  Real largest_value_norm = 1;  // largest norm in the stream, for `buckets` false
  Side side = Side::kSmaller;
  bool buckets = true;
  std::string erase = "paper";
  Index sinks = 0;
  Index recent = 0;
  Index tokens = 0;  // n of the erase rule
  std::uint32_t seed = 0;
};

// Tokens by weight, and how often walks failed, once `row` has been fed.
struct NaiveBalanceState {
  std::map<int, NaiveMergeAndReduce> buckets;  // by i: 2^(i-1) <= ||v|| < 2^i
  NaiveMergeAndReduce denominator{2, 0};
  std::vector<Index> exact;  // sinks and recent tokens
  Index fail = 0;
  Index erased = 0;
};
std::vector<NaiveBalanceState> naive_balancekv(const Stream& stream, const NaiveBalanceKv& rule);

// One halving of the prefill method: which places stay, and with which factor, from the signs.
struct KeptPlace {
  Index place;
  Index factor;
};
std::vector<KeptPlace> naive_prefill_half(const std::vector<int>& signs);

struct NaivePrefill {
  Index T = 1;
  Index block = 256;
  Real gamma = 4;
  Real temperature = 0.1L;
  Real value_offset = 0.025L;
  bool center = true;
  std::uint32_t seed = 0;
};

struct NaivePrefillResult {
  std::vector<Index> tokens;   // tokens of the middle, ascending
  std::vector<Index> weights;  // product of factors
  Index clamped = 0;
};
NaivePrefillResult naive_prefill(const Stream& stream, Index first, Index last,
                                 const NaivePrefill& rule);

}  // namespace kvbench::test
