// The progress bar of a run: one line on stderr, on a terminal only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "run/run_observer.hpp"

namespace kvbench {

class Progress : public RunObserver {
 public:
  // Silent if `quiet` is set or stderr is not a terminal.
  explicit Progress(bool quiet);
  ~Progress() override;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void begin(std::size_t cells) override;
  void at(const std::string& place) override;
  void cell_done() override;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(bool always);

  std::size_t total_ = 0;
  std::size_t done_ = 0;
  bool is_shown_;
  std::string place_;
  Clock::time_point start_;
  Clock::time_point drawn_;
};

// "45 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

}  // namespace kvbench
