#include "output/progress.hpp"

#include <doctest/doctest.h>

#include <string>

#include "output/terminal.hpp"

namespace kvbench::test {
namespace progress_test {

const ProgressState kEarly{
    .done = 12, .total = 48, .seconds = 4.0, .place = "sequence 0 layer 1 head 2"};

TEST_CASE("what does not fit is left out: bar shorter, place, bar, speed, time") {
  CHECK(progress_text(kEarly, 90) ==
        "[######------------------] 12/48 cells, 3/s, 12 s left  sequence 0 layer 1 head 2");
  CHECK(progress_text(kEarly, 79) ==
        "[#####-----------------] 12/48 cells, 3/s, 12 s left  sequence 0 layer 1 head 2");
  CHECK(progress_text(kEarly, 59) == "[#-----] 12/48 cells, 3/s, 12 s left  sequence 0 layer 1...");
  CHECK(progress_text(kEarly, 39) == "[##-------] 12/48 cells, 3/s, 12 s left");
  CHECK(progress_text(kEarly, 30) == "12/48 cells, 3/s, 12 s left");
  CHECK(progress_text(kEarly, 23) == "12/48 cells, 12 s left");
  CHECK(progress_text(kEarly, 16) == "12/48, 12 s left");
  CHECK(progress_text(kEarly, 11) == "12/48");
  CHECK(progress_text(kEarly, 4) == "1...");
}

TEST_CASE("no line is wider than its columns, whatever the names are") {
  ProgressState state{.done = 1, .total = 48000, .seconds = 0.1, .place = "sequence "};
  for (int i = 0; i < 30; ++i) state.place += "\u5e8f\n\x1b[41m";
  for (std::size_t columns = 0; columns < 200; ++columns) {
    const std::string text = progress_text(state, columns);
    CAPTURE(text);
    CHECK(display_width(text) <= columns);
    CHECK(printable(text) == text);
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("before the first cell is done nothing is said of the time left") {
  CHECK(progress_text({.done = 0, .total = 5, .seconds = 1.0, .place = ""}, 60) ==
        "[------------------------] 0/5 cells, 0/s");
}

}  // namespace progress_test
}  // namespace kvbench::test
