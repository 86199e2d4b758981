// The tasks that kvbench and its peers are compared on.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/comparison_stream.hpp"

namespace kvbench::bench {

// The numbers that a run gave, for comparison with the peer's. Names that begin with ~ are shown,
// not compared: they depend on draws.
using Answers = std::vector<std::pair<std::string, double>>;

struct Task {
  std::string name;
  std::function<double()> floor;     // seconds, after a run; 0: none is known
  std::function<void()> run;         // the timed work
  std::function<Answers()> answers;  // answers of the last run
};

// Every task that the stream can do. `stream` must outlive them.
std::vector<Task> comparison_tasks(const ComparisonStream& stream);

// Tasks for the cost of one more seed; their answers are ~first, the seconds of a replay with one
// seed, and ~further, the seconds that each further seed adds.
std::vector<Task> seed_tasks(const Dump& dump, const ComparisonStream& stream);

}  // namespace kvbench::bench
