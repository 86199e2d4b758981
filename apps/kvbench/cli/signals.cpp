#include "cli/signals.hpp"

#include <csignal>

namespace kvbench {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

void on_signal(int signal) {
  if (stop_requested.exchange(true) && signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

void handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) {
    struct sigaction before = {};
    // nohup has SIGHUP ignored, and so it stays.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

StopSignals::StopSignals() {
  stop_requested = false;
  handle(on_signal);
}

StopSignals::~StopSignals() { handle(SIG_DFL); }

std::atomic<bool>& StopSignals::stop() { return stop_requested; }

}  // namespace kvbench
