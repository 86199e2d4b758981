// Benchmarks of codecs, with the machine's limits, measured in the same run;
// or `benchmarks --tasks DUMP`: the tasks of the comparison with peers, on request.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string_view>

#include "bench/floor.hpp"
#include "bench/task_server.hpp"

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--tasks") {
    return kvbench::bench::serve_tasks(argv[2]);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const kvbench::bench::Floor& floor = kvbench::bench::machine_floor();
  const auto giga = [](double one, double all, const char* unit) {
    return fmt::format("{:.1f} {} on one thread, {:.1f} on all", one * 1e-9, unit, all * 1e-9);
  };
  benchmark::AddCustomContext("threads", fmt::format("{}", floor.threads));
  benchmark::AddCustomContext("multiply-add",
                              giga(floor.fma_flops_one, floor.fma_flops_all, "GF/s (double)"));
  benchmark::AddCustomContext("memory read",
                              giga(floor.read_bytes_one, floor.read_bytes_all, "GB/s"));
  benchmark::AddCustomContext("exp",
                              fmt::format("{:.2f} G/s on all threads", floor.exps_all * 1e-9));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
