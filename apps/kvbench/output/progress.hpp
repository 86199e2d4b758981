// The progress bar of a run: one line on stderr, on a terminal only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "run/run_observer.hpp"

namespace kvbench {

// A line on a terminal that is overwritten and finally cleared, without escape sequences: it is
// filled up with spaces to one column less than the terminal has at that moment.
class StatusLine {
 public:
  // Silent if `quiet` is set or stderr is not a terminal.
  explicit StatusLine(bool quiet);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool is_shown() const { return is_shown_; }
  // Columns that a text may take now.
  static std::size_t columns();
  // `text` is cut where it is wider.
  void show(const std::string& text);
  // Leaves an empty line, for what is printed next.
  void clear();

 private:
  bool is_shown_;
  bool is_drawn_ = false;
};

struct ProgressState {
  std::size_t done = 0;
  std::size_t total = 0;  // above 0
  double seconds = 0.0;   // since the first cell began
  std::string place;      // the cells that are computed
};

// "[######------] 12/48 cells, 3.1/s, 12 s left  sequence 0 layer 1 head 2" in at most `columns`:
// in less room the bar is shorter, then place, bar, speed and time are left out, in this order.
std::string progress_text(const ProgressState& state, std::size_t columns);

class Progress : public RunObserver {
 public:
  explicit Progress(bool quiet) : line_(quiet) {}

  void begin(std::size_t cells) override;
  void at(const std::string& place) override;
  void cell_done() override;
  // No more is drawn, and what was drawn is cleared.
  void end() override;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(bool always);

  StatusLine line_;
  ProgressState state_;
  Clock::time_point start_;
  Clock::time_point drawn_;
};

// "45 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

}  // namespace kvbench
