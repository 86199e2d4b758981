// The sweep files that the project ships read without an error.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "sweep/read_sweep.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace shipped_configs_test {

TEST_CASE("every shipped sweep file is valid") {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(KVBENCH_SOURCE_DIR "/configs")) {
    if (file.path().extension() != ".json") continue;
    CAPTURE(file.path().string());
    ++files;
    try {
      const SweepConfig config = read_sweep(file.path().string());
      CHECK(config.name == file.path().stem().string());
    } catch (const InputError& error) {
      for (const std::string& message : error.messages()) FAIL_CHECK(message);
    }
  }
  CHECK(files >= 1);
}

TEST_CASE("quick.json shows ten algorithms with three seeds") {
  const SweepConfig config = read_sweep(KVBENCH_SOURCE_DIR "/configs/quick.json");
  std::set<std::string> ids;
  for (const SweepEntry& entry : config.entries) ids.insert(entry.algorithm->id);
  CHECK(ids == std::set<std::string>{"exact", "window", "streaming_llm", "h2o", "key_attention",
                                     "keyformer", "uniform", "balancekv_prefill", "kcenter",
                                     "subgen"});
  CHECK(config.seeds.size() == 3);
}

}  // namespace shipped_configs_test
}  // namespace kvbench
