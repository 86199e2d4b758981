#include "output/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "output/terminal.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kLongestBar = 24;
constexpr std::size_t kShortestBar = 6;
constexpr std::size_t kFrame = 3;          // brackets and the space behind them
constexpr std::size_t kPlaceColumns = 14;  // less of a place says nothing
constexpr std::chrono::milliseconds kBetweenDraws{100};

// The longest way to say how far the run is that fits.
std::string count_text(const ProgressState& state, std::size_t columns) {
  const double rate = state.seconds > 0.0 ? state.done / state.seconds : 0.0;
  const std::string count = fmt::format("{}/{}", state.done, state.total);
  std::string left;
  if (rate > 0.0) {
    left = ", " + duration_text((state.total - state.done) / rate) + " left";
  }
  const std::vector<std::string> ways = {fmt::format("{} cells, {:.3g}/s{}", count, rate, left),
                                         count + " cells" + left, count + left, count};
  const auto fits = [&](const std::string& way) { return way.size() <= columns; };
  const auto found = std::find_if(ways.begin(), ways.end(), fits);
  return found == ways.end() ? cut_to(count, columns) : *found;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

StatusLine::StatusLine(bool quiet) : is_shown_(!quiet && isatty(STDERR_FILENO) != 0) {}

StatusLine::~StatusLine() { clear(); }

void StatusLine::clear() {
  if (!is_drawn_) return;
  show("");
  std::fputc('\r', stderr);
  is_drawn_ = false;
}

std::size_t StatusLine::columns() {
  return std::max<std::size_t>(terminal_columns(stderr), 2) - 1;  // a full line would wrap
}

void StatusLine::show(const std::string& text) {
  if (!is_shown_) return;
  is_drawn_ = true;
  const std::size_t width = columns();
  const std::string shown = cut_to(one_line(text), width);
  const std::string line = "\r" + shown + std::string(width - display_width(shown), ' ');
  if (std::fwrite(line.data(), 1, line.size(), stderr) != line.size()) std::clearerr(stderr);
  std::fflush(stderr);
}

std::string progress_text(const ProgressState& state, std::size_t columns) {
  const std::string count = count_text(state, columns);
  const std::string place = one_line(state.place);
  std::size_t rest = columns - count.size();
  std::size_t for_place = 0;
  if (rest >= kShortestBar + kFrame + kPlaceColumns + 2) {
    for_place = std::min(display_width(place) + 2, rest - kShortestBar - kFrame);
    rest -= for_place;
  }
  std::string bar;
  if (rest >= kShortestBar + kFrame) {
    const std::size_t width = std::min(kLongestBar, rest - kFrame);
    const std::size_t filled = state.done * width / state.total;
    bar = "[" + std::string(filled, '#') + std::string(width - filled, '-') + "] ";
  }
  return bar + count + (for_place > 2 ? "  " + cut_to(place, for_place - 2) : "");
}

void Progress::begin(std::size_t cells) {
  state_.total = cells;
  start_ = Clock::now();
}

void Progress::at(const std::string& place) {
  state_.place = place;
  draw(false);
}

void Progress::cell_done() {
  ++state_.done;
  draw(state_.done == state_.total);
}

void Progress::end() {
  state_.total = 0;
  line_.clear();
}

void Progress::draw(bool always) {
  if (!line_.is_shown() || state_.total == 0) return;
  const Clock::time_point now = Clock::now();
  if (!always && now - drawn_ < kBetweenDraws) return;
  drawn_ = now;
  state_.seconds = std::chrono::duration<double>(now - start_).count();
  line_.show(progress_text(state_, StatusLine::columns()));
}

}  // namespace kvbench
