// Paths as results have them.
#include "system/portable_path.hpp"

#include <doctest/doctest.h>

#include <filesystem>

namespace kvbench::test {

TEST_CASE("a path is written from a folder with which it shares more than the root") {
  CHECK(portable_path("/home/a/s/mine.json", "/home/a") == "s/mine.json");
  CHECK(portable_path("/home/a/s/mine.json", "/home/a/s/deep") == "../mine.json");
  CHECK(portable_path("/home/a/./s/../mine.json", "/home/a/s") == "../mine.json");
  CHECK(portable_path("/home/a", "/home/a") == ".");
  CHECK(portable_path("/srv/d.h5", "/home/a") == "/srv/d.h5");
  CHECK(portable_path("/srv/d.h5", "/") == "/srv/d.h5");
  CHECK(portable_path("/", "/home/a") == "/");
  CHECK(portable_path("s/mine.json", "/home/a") == "s/mine.json");
  CHECK(portable_path("", "/home/a").empty());
  const std::string here = std::filesystem::current_path().string();
  CHECK(portable_path(here + "/x.h5") == "x.h5");
}

TEST_CASE("a text without folders keeps the last part of what leads out") {
  CHECK(without_folders("kvbench run --config /home/alice/s.json --out=/tmp/o/") ==
        "kvbench run --config s.json --out=o");
  CHECK(without_folders("'/home/al ice/s.json'") == "'al ice/s.json'");  // a word at a time
  CHECK(without_folders("../alice/d.h5: cannot open; see (/etc/x)") ==
        "d.h5: cannot open; see (x)");
  CHECK(without_folders("kb.run(\"/home/alice/s.json\", only=\"ab\")") ==
        "kb.run(\"s.json\", only=\"ab\")");
  for (const char* kept : {"", "/", "results/mine.json", "a/b and 1/2, h2o/h2o/0/1/2", "a  b\n"}) {
    CHECK(without_folders(kept) == (std::string(kept) == "/" ? "" : kept));
  }
}

}  // namespace kvbench::test
