// Files that appear whole or not at all, and survive a power cut.
#include "system/file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/watched_calls.hpp"
#include "system/append_log.hpp"

namespace kvbench::test {
namespace file_test {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "kvbench-file-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = fs::canonical(name).string();
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string content(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) != -1; }

TEST_CASE("a file is flushed before it gets its name, and its folder after that") {
  const Folder folder;
  const std::string path = folder.file("a");
  std::ofstream(path) << "before";
  std::ofstream(folder.file("b")) << "after";
  calls().clear();
  replace_file(folder.file("b"), path);
  CHECK(calls() == std::vector<std::string>{"fsync " + folder.file("b"),
                                            "rename " + folder.file("b") + " " + path,
                                            "fsync " + folder.path()});
  CHECK(content(path) == "after");
  CHECK_FALSE(fs::exists(folder.file("b")));
}

TEST_CASE("a file that is not committed leaves what was there, and nothing else") {
  const Folder folder;
  const std::string path = folder.file("a");
  std::ofstream(path) << "before";
  {
    AtomicFile(path).write("after");
  }
  CHECK(content(path) == "before");
  {
    AtomicFile file(path);
    file.write("af");
    file.write("ter");
    file.commit();
  }
  CHECK(content(path) == "after");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("what is being written has a name of its own, and killed programs' are found by it") {
  const Folder folder;
  const std::string path = folder.file("a.json");
  const std::string name = temporary_name(path);
  CHECK(name != temporary_name(path));
  CHECK(finished_name(name) == path);
  CHECK(finished_name("a.json.tmp") == "a.json");  // a name of earlier versions
  CHECK(finished_name("a.json").empty());
  CHECK(finished_name("a.0123456g.tmp") == "a.0123456g");
  CHECK(finished_name(".01234567.tmp") == ".01234567");
  {
    AtomicFile one(path), two(path);
    one.write("one");
    two.write("two");
    two.commit();
    CHECK(content(path) == "two");
    one.commit();
  }
  CHECK(content(path) == "one");
  for (const std::string& left : {name, path + ".tmp", folder.file("b.json.tmp")}) {
    std::ofstream(left) << "half";
  }
  remove_unfinished(path);
  CHECK_FALSE(fs::exists(name));
  CHECK_FALSE(fs::exists(path + ".tmp"));
  CHECK(fs::exists(path));
  CHECK(fs::exists(folder.file("b.json.tmp")));
}

TEST_CASE("each reason not to write has its own remedy") {
  const auto remedy = [](int code) { return write_error("a", "write", code); };
  CHECK(remedy(ENOSPC) == "a: cannot write: No space left on device; free disk space");
  CHECK(remedy(EACCES) ==
        "a: cannot write: Permission denied; change its permissions, or choose another --out");
  CHECK(remedy(ENOTDIR) == "a: cannot write: Not a directory; choose another --out");
  CHECK(remedy(EFBIG).ends_with("(ulimit -f)"));
  CHECK(remedy(EMFILE).ends_with("(ulimit -n)"));
}

TEST_CASE("what the system refuses says the place and the reason") {
  const Folder folder;
  CHECK_THROWS_WITH_AS(
      AtomicFile(folder.file("none/a")),
      (folder.file("none/a") + ": cannot create: No such file or directory; choose another --out")
          .c_str(),
      IoError);
  std::ofstream(folder.file("b")) << "after";
  fs::create_directories(folder.file("a/full"));
  CHECK_THROWS_AS(replace_file(folder.file("b"), folder.file("a")), IoError);
  CHECK(content(folder.file("b")) == "after");
  CHECK_THROWS_AS(replace_file(folder.file("none"), folder.file("c")), IoError);
}

TEST_CASE("a descriptor is closed once, by whoever owns it last") {
  const Folder folder;
  int number = -1;
  {
    UniqueFd first(::open(folder.path().c_str(), O_RDONLY));
    number = first.get();
    REQUIRE(first.is_open());
    UniqueFd second(std::move(first));
    CHECK(second.get() == number);
    UniqueFd third;
    CHECK_FALSE(third.is_open());
    third = std::move(second);
    CHECK(is_open(number));
    CHECK(third.get() == number);
    errno = EIO;
    third.reset();
    CHECK(errno == EIO);
    CHECK_FALSE(is_open(number));
    third.reset(::open(folder.path().c_str(), O_RDONLY));
    number = third.get();
    CHECK(is_open(number));
  }
  CHECK_FALSE(is_open(number));
}

TEST_CASE("a file of which the system cannot tell whether it is there is not taken for absent") {
  const Folder folder;
  CHECK_FALSE(file_exists(folder.file("none")));
  CHECK_FALSE(file_exists(folder.file("none/below")));
  std::ofstream(folder.file("a")) << "x";
  CHECK(file_exists(folder.file("a")));
  fs::create_symlink("loop", folder.file("loop"));
  CHECK_THROWS_AS(file_exists(folder.file("loop")), IoError);
}

TEST_CASE("a log gives back what was appended, and its reader cuts off the rest") {
  const Folder folder;
  const std::string path = folder.file("log");
  {
    AppendLog log(path, AppendLog::Access::kWrite);
    CHECK(log.append("one") == 0);
    CHECK(log.append("three") == 3);
    CHECK(log.read(3, 5) == "three");
    log.sync();
  }
  AppendLog log(path, AppendLog::Access::kWrite);
  CHECK(log.size() == 8);
  log.cut(3);
  CHECK(log.append("two") == 3);
  CHECK(content(path) == "onetwo");
  std::array<char, 8> bytes{};
  CHECK(log.read_some(4, bytes) == 2);
  CHECK_THROWS_WITH_AS(log.read(4, 3), (path + ": was truncated while being read").c_str(),
                       IoError);
  CHECK_THROWS_AS(AppendLog(folder.file("none"), AppendLog::Access::kRead), IoError);
}

TEST_CASE("a record for which there is no room leaves nothing behind") {
  const Folder folder;
  const std::string path = folder.file("log");
  AppendLog log(path, AppendLog::Access::kWrite);
  log.append("whole");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{8, before.rlim_max};  // three bytes of the next record fit
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_THROWS_AS(log.append("record"), IoError);
  CHECK(log.size() == 5);
  CHECK(content(path) == "whole");
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(log.append("record") == 5);
  CHECK(content(path) == "wholerecord");
}

}  // namespace file_test
}  // namespace kvbench::test
