// Cosines of keys: what rkv, merge_cosine, kf_merge and d2o compare tokens by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/stream.hpp"

namespace kvbench {

// [tokens][d]: where the keys of tokens are.
std::vector<const double*> keys_of(const Stream& stream, const std::vector<std::int32_t>& tokens);

// Keys over their lengths, [keys, d], row after row. `length` turns a key's 2-norm into what it is
// divided by, so that a key of length 0 is not divided by 0.
std::vector<double> unit_keys(const std::vector<const double*>& keys, Index d,
                              const std::function<double(double)>& length);

// Inner products of each row of `a` with all rows of `b`, both [.., d], in the order of a's rows:
// `visit(i, products)`, which may change the products.
void for_each_cosine(const std::vector<double>& a, const std::vector<double>& b, Index d,
                     const std::function<void(Index i, double* products)>& visit);

// Bytes that this takes: both, keys as a kernel lays them out, and some rows of products.
double cosines_bytes(Index rows, Index columns, Index d);

// Calls `visit(token, place in among, cosine)` for each of `tokens` in order, with the first of
// `among` whose key has the largest cosine with its own. A key shorter than 1e-6 counts as that
// long.
void for_each_nearest(
    const Stream& stream, const std::vector<std::int32_t>& tokens,
    const std::vector<std::int32_t>& among,
    const std::function<void(std::int32_t token, std::size_t place, double cosine)>& visit);

}  // namespace kvbench
