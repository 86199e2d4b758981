// The sweep parser and the plan: any text, after a zero byte any --set values. Either a refusal
// that names its place, or a plan whose resolved sweep is a sweep of the same plan.
#include <fnmatch.h>
#include <glob.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "fuzz/promise.hpp"
#include "fuzz/scratch_folder.hpp"
#include "sweep/plan.hpp"

using namespace kvbench;
using fuzz::promise;

namespace {

// Named by sweeps, never read.
const std::string& dump_path() {
  static const std::string path = [] {
    const std::string made = fuzz::kScratchFolder.file("a.h5");
    std::ofstream(made, std::ios::binary) << "a file";
    return made;
  }();
  return path;
}

PlannedDump made_dump(const std::string& path) {
  PlannedSequence sequence{.name = "0", .prompt_tokens = 40, .evidence = nullptr, .layers = {}};
  for (const int layer : {0, 3}) {
    StreamShape shape;
    shape.tokens = 48;
    shape.d = shape.dv = 4;
    shape.heads_per_kv = 2;
    shape.n_layers = 4;
    shape.scale = 0.5;
    sequence.layers.push_back({.index = layer, .kv_heads = 2, .shape = shape});
  }
  return {.path = path,
          .fingerprint = "f",
          .state = "",
          .model = "m",
          .n_layers = 4,
          .sequences = {sequence}};
}

double cells_on_a_head(const SweepConfig& config) {
  double cells = 0.0;
  for (const SweepEntry& entry : config.entries) cells += entry.cells(config.seeds.size());
  return cells;
}

Plan plan_of(const SweepConfig& config) {
  std::vector<PlannedDump> dumps;
  for (const std::string& path : config.dumps) dumps.push_back(made_dump(path));
  return make_plan(config, std::move(dumps));
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the linker's names
extern "C" int __wrap_glob(const char* pattern, int, int (*)(const char*, int), glob_t* matches) {
  static std::string path = dump_path();  // its own, since the result is not const
  static char* paths[] = {path.data(), nullptr};
  const bool found = fnmatch(pattern, path.c_str(), FNM_PATHNAME) == 0;
  matches->gl_pathc = found ? 1 : 0;
  matches->gl_pathv = paths;
  return found ? 0 : GLOB_NOMATCH;
}
extern "C" void __wrap_globfree(glob_t*) {}
// NOLINTEND(readability-identifier-naming)

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr double kMaxPlanned = 2000.0;
  const std::string all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(all.find('\0'), all.size());
  std::vector<std::string> sets;
  for (std::size_t at = end; at < all.size();) {
    const std::size_t next = std::min(all.find('\0', at + 1), all.size());
    sets.push_back(all.substr(at + 1, next - at - 1));
    at = next;
  }
  dump_path();
  const std::string path = fuzz::kScratchFolder.file("s.json");
  SweepConfig config;
  try {
    config = parse_sweep(all.substr(0, end), path, sets, all_algorithms());
  } catch (const InputError& error) {
    fuzz::check_refusal(error, "s.json");
    return 0;
  }
  if (cells_on_a_head(config) > kMaxPlanned) return 0;
  Plan plan;
  try {
    plan = plan_of(config);
  } catch (const InputError& error) {
    fuzz::check_refusal(error, "");
    return 0;
  }
  const Plan again = plan_of(parse_sweep(
      plan.config.dump(), fuzz::kScratchFolder.file("resolved.json"), {}, all_algorithms()));
  promise(again.hash == plan.hash, "the resolved sweep plans other cells");
  promise(again.config == plan.config, "the resolved sweep resolves to another");
  return 0;
}
