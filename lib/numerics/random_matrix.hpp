// Random matrices of counter-based draws, and the Hadamard matrix: rotations and projections. All
// are row-major and have the same bits on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// [d] independent N(0, 1): element k is the normal quantile of the draw at (row, k, round).
std::vector<double> normal_vector(const CounterRng& draw, Index d, std::uint32_t row,
                                  std::uint32_t round = 0);

// [rows, d], row r of it normal_vector(draw, d, r).
std::vector<double> normal_matrix(const CounterRng& draw, Index rows, Index d);

// [d, d], Haar-distributed: Q of A = Q R, where A's rows are normal_vector(draw, d, row, round) and
// R's diagonal is positive, which makes Q unique.
std::vector<double> haar_matrix(const CounterRng& draw, Index d, std::uint32_t round = 0);

// [rows, d]: the first rows of haar_matrix of round 0, 1, .. below each other; rows of one matrix
// are orthonormal.
std::vector<double> stacked_haar_matrices(const CounterRng& draw, Index rows, Index d);

// [d] of 1 and -1, each with probability 1/2.
std::vector<double> fair_signs(const CounterRng& draw, Index d);

bool is_power_of_two(Index d);

// x [d] becomes H x, d a power of two, H the matrix of H_1 = [1], H_2m = [[H_m, H_m], [H_m, -H_m]]
// over sqrt(d): symmetric and its own inverse.
void hadamard_transform(double* x, Index d);

}  // namespace kvbench
