// The limit of the control groups that hold this process, read from made-up systems.
#include "system/memory_limit.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/sanitized.hpp"

namespace kvbench::test {
namespace memory_limit_test {

namespace fs = std::filesystem;

// A folder that replaces /.
class System {
 public:
  System() {
    std::string name = (fs::temp_directory_path() / "kvbench-limit-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  ~System() { fs::remove_all(root_); }
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  System& write(const std::string& path, const std::string& content) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << content << "\n";
    return *this;
  }
  std::optional<std::uint64_t> limit() const { return control_group_limit(root_); }

 private:
  std::string root_;
};

const char* const kUnified =
    "24 22 0:22 / /proc rw shared:5 - proc proc rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

TEST_CASE("the limit of a unit of systemd or a step of Slurm is found below the root") {
  System system;
  system.write("/proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0")
      .write("/proc/self/mountinfo", kUnified)
      .write("/sys/fs/cgroup/system.slice/memory.max", "max")
      .write("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max", "4294967296")
      .write("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/memory.max", "max")
      .write("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.max",
             "max")
      .write("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_8/memory.max", "1");
  CHECK(system.limit() == 4294967296u);
  system.write("/sys/fs/cgroup/system.slice/memory.max", "1073741824");
  CHECK(system.limit() == 1073741824u);
  system.write("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.max",
               "1048576");
  CHECK(system.limit() == 1048576u);
}

TEST_CASE("in a namespace of its own a container's limit stands at the root") {
  System system;
  system.write("/proc/self/cgroup", "0::/")
      .write("/proc/self/mountinfo", kUnified)
      .write("/sys/fs/cgroup/memory.max", "536870912");
  CHECK(system.limit() == 536870912u);
}

TEST_CASE("a group that is mounted in place of the root is the top") {
  System system;
  system.write("/proc/self/cgroup", "0::/docker/abc/inner")
      .write("/proc/self/mountinfo",
             "30 23 0:26 /docker/abc /sys/fs/my\\040groups ro - cgroup2 cgroup2 rw")
      .write("/sys/fs/my groups/memory.max", "2000")
      .write("/sys/fs/my groups/inner/memory.max", "3000")
      .write("/sys/fs/memory.max", "1");
  CHECK(system.limit() == 2000u);
  // A namespace shows groups outside of its own so.
  system.write("/proc/self/cgroup", "0::/../other");
  CHECK(system.limit() == 2000u);
}

TEST_CASE("version 1 has its limit in the memory controller alone, beside an empty version 2") {
  System system;
  system.write("/proc/self/cgroup", "9:cpu,cpuacct:/tight\n4:memory:/jobs/7\n0::/init.scope")
      .write("/proc/self/mountinfo",
             "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw")
      .write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
      .write("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "700")
      .write("/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "800")
      .write("/sys/fs/cgroup/cpu/tight/memory.limit_in_bytes", "1");
  CHECK(system.limit() == 700u);
}

TEST_CASE("where no group has a limit there is none") {
  System system;
  CHECK(!system.limit());
  system.write("/proc/self/cgroup", "0::/user.slice\nnonsense\n")
      .write("/proc/self/mountinfo", kUnified);
  CHECK(!system.limit());
  system.write("/sys/fs/cgroup/user.slice/memory.max", "max");
  CHECK(!system.limit());
}

TEST_CASE("what may be used is at most the machine's memory and the address space") {
  const std::uint64_t machine = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t usable = usable_memory();
  CHECK(usable > 0);
  CHECK(usable <= machine);
  if (const auto limit = control_group_limit()) CHECK(usable <= *limit);
  const pid_t child = fork();
  if (child == 0) {
    const rlim_t half = usable / 2;
    const rlimit space{half, half};
    _exit(setrlimit(RLIMIT_AS, &space) == 0 && usable_memory() == half ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  if (!kSanitized) CHECK(status == 0);
}

}  // namespace memory_limit_test
}  // namespace kvbench::test
