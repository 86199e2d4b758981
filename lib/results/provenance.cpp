#include "results/provenance.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "results/build_info.hpp"
#include "results/git_info.hpp"
#include "system/parallel.hpp"
#include "system/portable_path.hpp"

namespace kvbench {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// The Slurm job of this process; empty outside of Slurm.
Json slurm_environment() {
  Json slurm = Json::object();
  for (const char* name :
       {"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
        "SLURM_RESTART_COUNT", "SLURM_JOB_PARTITION", "SLURMD_NODENAME", "SLURM_CPUS_PER_TASK"}) {
    if (const char* value = std::getenv(name)) slurm[name] = value;
  }
  return slurm;
}

// A word of a command line; of --option=PATH the path.
std::string portable_word(const std::string& word) {
  const std::size_t value = word.starts_with("--") ? word.find('=') + 1 : 0;
  return word.substr(0, value) + portable_path(word.substr(value));
}

}  // namespace

std::string program_version() { return build_info::kVersion; }

std::string instruction_set() {
#if defined(__AVX512F__)
  return "avx512";
#elif defined(__AVX2__) && defined(__FMA__)
  return "avx2";
#else
  return "baseline";
#endif
}

std::string version_line() {
  std::string line = "kvbench " + program_version();
  if (git_info::kCommit[0] != '\0') {
    line += std::string(" (") + std::string(git_info::kCommit).substr(0, 12) +
            (git_info::kDirty ? ", modified" : "") + ")";
  }
  return line + ", " + build_info::kCompiler + ", " + instruction_set();
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, 10, "model name") != 0) continue;
    const std::size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown";
}

Json provenance(const std::vector<std::string>& argv) {
  Json out;
  out["version"] = program_version();
  const bool is_known = git_info::kCommit[0] != '\0';
  out["git"] = {{"commit", is_known ? Json(git_info::kCommit) : Json(nullptr)},
                {"dirty", is_known ? Json(git_info::kDirty) : Json(nullptr)}};
  out["compiler"] = build_info::kCompiler;
  out["flags"] = build_info::kFlags;
  out["isa"] = instruction_set();
  out["cpu"] = cpu_model();
  out["threads"] = thread_count();
  out["gpu"] = nullptr;
  out["cuda"] = nullptr;
  out["libraries"] = Json::object();
  for (const auto& [name, version] : build_info::kLibraries) out["libraries"][name] = version;
  out["host"] = host_name();
  out["started"] = utc_now();
  out["argv"] = Json::array();
  for (const std::string& word : argv) {
    out["argv"].push_back(out["argv"].empty() ? std::filesystem::path(word).filename().string()
                                              : portable_word(word));
  }
  out["slurm"] = slurm_environment();
  return out;
}

}  // namespace kvbench
