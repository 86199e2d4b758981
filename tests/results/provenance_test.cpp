#include "results/provenance.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

namespace kvbench::test {
namespace provenance_test {

TEST_CASE("provenance has every name of the contract") {
  const Json run = provenance({"kvbench", "run", "--config", "a b.json"});
  for (const char* name : {"version", "git", "compiler", "flags", "cpu", "threads", "gpu", "cuda",
                           "libraries", "host", "started", "argv", "slurm"}) {
    CHECK_MESSAGE(run.contains(name), name);
  }
  CHECK(run["git"].contains("commit"));
  CHECK(run["git"].contains("dirty"));
  CHECK(run["argv"][3] == "a b.json");
  CHECK(run["started"].get<std::string>().size() == 20);
  CHECK(run["threads"].get<int>() >= 1);
  CHECK(run["flags"].get<std::string>().find("-ffp-contract=off") != std::string::npos);
  for (const auto& [name, version] : run["libraries"].items()) {
    CHECK_MESSAGE(!version.get<std::string>().empty(), name);
  }
}

TEST_CASE("the Slurm job is recorded, and nothing else of the environment") {
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("SLURM_SECRET", "x", 1);
  const Json run = provenance({});
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_SECRET");
  CHECK(run["slurm"]["SLURM_JOB_ID"] == "4711");
  CHECK_FALSE(run["slurm"].contains("SLURM_SECRET"));
}

}  // namespace provenance_test
}  // namespace kvbench::test
