#include "bench/task_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>

#include "bench/comparison_tasks.hpp"
#include "bench/floor.hpp"

namespace kvbench::bench {
namespace {

void say(const std::string& line) { std::cout << line << '\n' << std::flush; }

void introduce(const ComparisonStream& stream, const std::vector<Task>& tasks) {
  const Floor& floor = machine_floor();
  std::string names;
  for (const Task& task : tasks) names += (names.empty() ? "" : ",") + task.name;
  say(
      fmt::format("ready sequence={} layer={} kv_head=0 tokens={} d={} scale={:.17g} delta={:.17g} "
                  "threads={} gflops={:.1f} read_gbs={:.1f} gexps={:.3f} tasks={}",
                  stream.sequence, stream.layer, stream.head.shape.tokens, stream.head.shape.d,
                  stream.head.shape.scale, stream.delta, floor.threads, floor.fma_flops_all * 1e-9,
                  floor.read_bytes_all * 1e-9, floor.exps_all * 1e-9, names));
}

std::string answer(const Task& task, int repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int r = 0; r < repeats; ++r) task.run();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  std::string line = fmt::format("ok {:.9g} {:.9g}", passed.count() / repeats, task.floor());
  for (const auto& [name, value] : task.answers()) line += fmt::format(" {}={:.17g}", name, value);
  return line;
}

}  // namespace

int serve_tasks(const std::string& dump_path) {
  try {
    const Dump dump(dump_path);
    const ComparisonStream stream = comparison_stream(dump);
    std::vector<Task> tasks = comparison_tasks(stream);
    for (Task& task : seed_tasks(dump, stream)) tasks.push_back(std::move(task));
    introduce(stream, tasks);
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string name;
      int repeats = 0;
      words >> name >> repeats;
      const auto found =
          std::find_if(tasks.begin(), tasks.end(), [&](const Task& t) { return t.name == name; });
      if (found == tasks.end() || repeats < 1) {
        say("error wanted: TASK REPEATS, got: " + line);
        continue;
      }
      try {
        say(answer(*found, repeats));
      } catch (const std::exception& error) {
        say(std::string("error ") + error.what());
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "benchmarks: {}\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace kvbench::bench
