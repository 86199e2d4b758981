#include "json/input_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "json/file_kind.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace input_file_test {

struct Place {
  std::string folder = [] {
    std::string made = (std::filesystem::temp_directory_path() / "kvbench-XXXXXX").string();
    REQUIRE(mkdtemp(made.data()) != nullptr);
    return made;
  }();
  ~Place() { std::filesystem::remove_all(folder); }

  std::string file(const std::string& text) const {
    const std::string path = folder + "/file";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
};

TEST_CASE_FIXTURE(Place, "a file is read whole, whatever bytes it holds") {
  std::string text(200'000, 'x');
  text[100'000] = '\0';
  CHECK(kvbench::read_text(file(text), "name one") == text);
  CHECK(kvbench::read_text(file(""), "name one").empty());
}

TEST_CASE_FIXTURE(Place, "folders, devices and files that are not there are refused") {
  const auto refused = [](const std::string& path, const char* words) {
    CHECK_THROWS_WITH_AS(kvbench::read_text(path, "name one"), doctest::Contains(words),
                         InputError);
  };
  refused(folder, "is a folder; name one");
  refused("/dev/zero", "is not a regular file; name one");
  refused(folder + "/none", "cannot read: No such file or directory; name one");
}

TEST_CASE_FIXTURE(Place, "a pipe in a folder is not waited for, one of a shell is read") {
  const std::string named = folder + "/pipe";
  REQUIRE(mkfifo(named.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(kvbench::read_text(named, "name one"),
                       doctest::Contains("pipe: is not a regular file; name one"), InputError);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "text", 4) == 4);
  close(ends[1]);
  CHECK(kvbench::read_text("/dev/fd/" + std::to_string(ends[0]), "name one") == "text");
  close(ends[0]);
}

TEST_CASE_FIXTURE(Place, "only nothing, an empty file or one of its kind is replaced") {
  const auto fits = [&](const std::string& path, WrittenKind kind) {
    try {
      refuse_to_replace(path, kind);
      return true;
    } catch (const InputError&) {
      return false;
    }
  };
  const std::string results =
      "{\n  \"schema_version\": \"1.0.0\",\n  \"kind\": \"kvbench.results\"";
  const std::string hdf5 = "\x89HDF\r\n\x1a\n...";
  for (const WrittenKind kind : {WrittenKind::kResults, WrittenKind::kHdf5}) {
    CHECK(fits(folder + "/none", kind));
    CHECK(fits(file(""), kind));
    CHECK(!fits(file("my note"), kind));
    CHECK(!fits(file("{\"kind\": \"kvbench.journal\"}"), kind));
    CHECK(!fits("/dev/null", kind));
    CHECK(!fits(folder, kind));
    CHECK(fits(file(results), kind) == (kind == WrittenKind::kResults));
    CHECK(fits(file(hdf5), kind) == (kind == WrittenKind::kHdf5));
  }
}

}  // namespace input_file_test
}  // namespace kvbench::test
