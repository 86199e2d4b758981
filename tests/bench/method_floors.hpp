// The least work of every method, by its own definition: the floors of the table of methods.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/algorithm_cell.hpp"
#include "bench/method_cell.hpp"

namespace kvbench::bench {

// The shape and the sizes that floors are counted in.
struct MethodSizes {
  double n = 0.0;   // tokens
  double P = 0.0;   // prompt tokens among them
  double R = 0.0;   // rows that are answered
  double G = 0.0;   // query heads
  double d = 0.0;   // dimension of keys, and
  double dv = 0.0;  // dimension of values
  double B = 0.0;   // budget
  const Stream* stream = nullptr;
};

// Work in units that the machine has rates for, on one thread.
struct Work {
  double flops = 0.0;
  double exps = 0.0;
  double bytes = 0.0;  // read from memory
  double draws = 0.0;

  Work operator+(const Work& other) const;
  // Arithmetic and reading can overlap: the longer of both; and the draws.
  double seconds() const;
};

struct MethodFloor {
  std::string id;
  Given given;          // parameters besides the defaults
  std::string formula;  // formula of `decide`, for the reader
  std::function<Work(const MethodSizes&)> decide;
};

// One for every algorithm but `given`.
std::vector<MethodFloor> method_floors(const MethodSizes& sizes);

// The floor of the answers, the same for all methods: two operations per number of every value that
// is summed; a logit and an exponential of every key that only this sketch has; the exponentials of
// the others and the values, each read once.
Work answer_floor(const MethodSizes& sizes, const MethodCell& cell);

}  // namespace kvbench::bench
