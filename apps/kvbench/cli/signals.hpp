// SIGINT, SIGTERM, SIGUSR1 (Slurm's warning) and SIGHUP (the terminal is gone) ask a run to stop
// cleanly.
#pragma once

#include <atomic>

namespace kvbench {

// Catches those of them that are not ignored until destroyed. The first sets stop(); a second
// SIGINT kills at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static std::atomic<bool>& stop();
};

}  // namespace kvbench
