// Files that appear whole or not at all, and survive a power cut.
#include "core/file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/watched_calls.hpp"

namespace kvbench::test {
namespace {

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

}  // namespace

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

TEST_CASE("what the system refuses says the place and the reason") {
  const Folder folder;
  CHECK_THROWS_WITH_AS(
      AtomicFile(folder.file("none/a")),
      (folder.file("none/a.tmp") + ": cannot create: No such file or directory").c_str(), IoError);
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

}  // namespace kvbench::test
