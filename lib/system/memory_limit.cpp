#include "system/memory_limit.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace kvbench {
namespace {

// Where a hierarchy of control groups is mounted, and which of its groups is there.
struct Mount {
  std::string group;
  std::string folder;
};

bool is_listed(std::string_view word, std::string_view list) {
  std::istringstream words{std::string(list)};
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

// A path of mountinfo, where blanks are written as \040.
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Mounts of cgroup v2, or of v1's memory controller (proc(5), /proc/PID/mountinfo).
std::vector<Mount> mounts(const std::string& root, bool v2) {
  std::vector<Mount> found;
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string skipped, group, folder, word, type, source, options;
    words >> skipped >> skipped >> skipped >> group >> folder;
    while (words >> word && word != "-") {
    }
    if (!(words >> type >> source >> options)) continue;
    if (v2 ? type == "cgroup2" : type == "cgroup" && is_listed("memory", options)) {
      found.push_back({unescaped(group), unescaped(folder)});
    }
  }
  return found;
}

// The limit in a file: "max" or a number.
std::optional<std::uint64_t> limit_in(const std::string& path) {
  std::uint64_t bytes = 0;
  if (std::ifstream(path) >> bytes) return bytes;
  return std::nullopt;
}

std::optional<std::uint64_t> least(std::optional<std::uint64_t> a, std::optional<std::uint64_t> b) {
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
}

// The least limit from `group` up to the one that is mounted. A group outside of it (of another
// namespace) counts as the one that is mounted.
std::optional<std::uint64_t> limit_of(const std::string& root, const Mount& mount,
                                      const std::string& group, const char* file) {
  const std::string top = mount.group == "/" ? "" : mount.group;
  std::string below;
  if (group.rfind(top + "/", 0) == 0) below = group.substr(top.size());
  std::optional<std::uint64_t> limit;
  while (true) {
    while (!below.empty() && below.back() == '/') below.pop_back();
    std::string path = root;
    path.append(mount.folder).append(below).append("/").append(file);
    limit = least(limit, limit_in(path));
    if (below.empty()) return limit;
    below.resize(below.rfind('/'));
  }
}

}  // namespace

std::optional<std::uint64_t> control_group_limit(const std::string& root) {
  std::optional<std::uint64_t> limit;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "hierarchy:controllers:group"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers(line.data() + first + 1, second - first - 1);
    const bool v2 = controllers.empty() && line.compare(0, first, "0") == 0;
    if (!v2 && !is_listed("memory", controllers)) continue;
    for (const Mount& mount : mounts(root, v2)) {
      limit = least(limit, limit_of(root, mount, line.substr(second + 1),
                                    v2 ? "memory.max" : "memory.limit_in_bytes"));
    }
  }
  return limit;
}

namespace {

std::uint64_t memory_of_the_machine() {
  const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(bytes, control_group_limit().value_or(bytes));
}

}  // namespace

std::uint64_t usable_memory() {
  static const std::uint64_t machine = memory_of_the_machine();
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return machine;
  return std::min(machine, static_cast<std::uint64_t>(space.rlim_cur));
}

}  // namespace kvbench
