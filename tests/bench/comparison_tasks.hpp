// The tasks that kvbench and its peers are compared on.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/comparison_stream.hpp"

namespace kvbench::bench {

// What a run gave, for comparison with what the peer's gave. Names that begin with ~ are told, not
// compared: they depend on draws.
using Answers = std::vector<std::pair<std::string, double>>;

struct Task {
  std::string name;
  std::function<double()> floor;     // seconds, after a run; 0: none is known
  std::function<void()> run;         // what is timed
  std::function<Answers()> answers;  // of the last run
};

// Every task that the stream can do. `stream` must outlive them.
std::vector<Task> comparison_tasks(const ComparisonStream& stream);

// What one more seed costs: tasks whose answers are ~first, the seconds of a replay with one seed,
// and ~further, what each further seed adds. seeds_ALGORITHM for each randomised algorithm, on one
// KV head; seeds_sweep for all algorithms in one sweep of all layers and KV heads.
std::vector<Task> seed_tasks(const Dump& dump, const ComparisonStream& stream);

}  // namespace kvbench::bench
