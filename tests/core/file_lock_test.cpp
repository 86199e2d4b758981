// Locks between programs.
#include "system/file_lock.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

namespace kvbench::test {
namespace file_lock_test {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "kvbench-lock-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name + "/a.lock";
  }
  ~Folder() { fs::remove_all(fs::path(path).parent_path()); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path;
};

TEST_CASE_FIXTURE(Folder, "one holds a lock, until it lets go") {
  auto first = std::make_unique<FileLock>(path, FileLock::After::kKeepFile);
  CHECK(first->is_held());
  CHECK(first->unsupported().empty());
  CHECK_FALSE(FileLock(path, FileLock::After::kRemoveFile).is_held());
  CHECK(fs::exists(path));  // who does not hold it removes nothing
  first.reset();
  CHECK(fs::exists(path));
  CHECK(FileLock(path, FileLock::After::kRemoveFile).is_held());
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE_FIXTURE(Folder, "a lock whose file goes with it is held by one program at a time") {
  // Each adds one to a number in a file, reading and writing it under the lock.
  const std::string count = path + ".count";
  const auto read = [&] { return fs::exists(count) ? fs::file_size(count) : 0; };
  constexpr int kPrograms = 4, kTimes = 50;
  for (int i = 0; i < kPrograms; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child != 0) continue;
    for (int done = 0; done < kTimes;) {
      const FileLock lock(path, FileLock::After::kRemoveFile);
      if (!lock.is_held()) continue;
      const auto before = read();
      AtomicFile file(count);
      file.write(std::string(before + 1, 'x'));
      file.commit();
      ++done;
    }
    _exit(0);
  }
  for (int i = 0; i < kPrograms; ++i) {
    int status = -1;
    REQUIRE(wait(&status) > 0);
    CHECK(status == 0);
  }
  CHECK(read() == kPrograms * kTimes);
  CHECK_FALSE(fs::exists(path));
}

}  // namespace file_lock_test
}  // namespace kvbench::test
