// The progress bar of a run: one line on stderr, on a terminal only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace kvbench {

class Progress {
 public:
  // `total` cells are to be computed. Silent when `quiet` or where stderr is no terminal.
  Progress(std::size_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What is being worked on, e.g. "sequence 0 layer 3 head 1".
  void at(const std::string& place);
  void cell_done();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(bool always);

  std::size_t total_;
  std::size_t done_ = 0;
  bool is_shown_;
  std::string place_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_;
};

// "45 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

}  // namespace kvbench
