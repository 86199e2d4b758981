// A dump, or a file of per-row values, has its name only once its bytes are on the disk: a power
// cut leaves no empty file.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cellfiles/rows_file.hpp"
#include "dump/small_dump.hpp"
#include "support/watched_calls.hpp"
#include "synth/writer.hpp"

namespace kvbench::test {
namespace put_in_place_test {

// The last three calls are the flush of the file that becomes `path`, its renaming, and the flush
// of the folder.
void check_put_in_place(const std::string& path) {
  REQUIRE(calls().size() >= 3);
  const std::vector<std::string> last(calls().end() - 3, calls().end());
  CAPTURE(path);
  const std::string temporary = last[0].substr(std::string("fsync ").size());
  CHECK(temporary != path);
  CHECK(last[0] == "fsync " + temporary);
  CHECK(last[1] == "rename " + temporary + " " + path);
  CHECK(last[2] == "fsync " + std::filesystem::path(path).parent_path().string());
}

TEST_CASE("a dump is flushed to the disk before it is put into place, and its folder after that") {
  const TemporaryFolder folder;
  const std::string path = std::filesystem::canonical(folder.path()).string() + "/a.h5";
  calls().clear();
  DumpWriter writer(path, {.model = "m", .producer = "p", .n_layers = 1});
  writer.add_sequence("s");
  writer.add_layer(0, {.query_heads = 1, .kv_heads = 1, .tokens = 2, .query_rows = 2, .d = 1});
  for (const char* tensor : {"q", "k", "v"}) writer.write_head(tensor, 0, {1.0, 2.0});
  CHECK(calls().empty());
  writer.finish();
  check_put_in_place(path);
}

TEST_CASE("so is a file of per-row values") {
  const TemporaryFolder folder;
  const std::string path = std::filesystem::canonical(folder.path()).string() + "/rows.h5";
  calls().clear();
  write_rows_file(path, {}, [](const AddCell&) {});
  check_put_in_place(path);
}

}  // namespace put_in_place_test
}  // namespace kvbench::test
