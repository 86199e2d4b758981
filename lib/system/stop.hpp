// Stopping long work that is under way: whatever may take more than a moment asks between its steps
// (parallel_for does by itself), so that a run ends soon after a stop is requested, wherever it is.
#pragma once

#include <atomic>

namespace kvbench {

// Thrown by work that was stopped. Not derived from std::exception, so that no handler takes
// it for a failure of what was being computed.
struct Stopped {};

namespace detail {
inline std::atomic<const std::atomic<bool>*> stop_flag{nullptr};
// Whether an index of a parallel range that this thread works for has thrown (system/parallel.cpp).
bool range_has_failed();
}  // namespace detail

// While it lives, throw_if_stopped throws in every thread once `flag` is set. One at a time; the
// flag must live as long.
class Stoppable {
 public:
  explicit Stoppable(const std::atomic<bool>& flag) { detail::stop_flag = &flag; }
  ~Stoppable() { detail::stop_flag = nullptr; }
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;
};

// Throws Stopped if the current work was stopped, or is useless because another
// index of its parallel range has thrown; costs next to nothing otherwise.
inline void throw_if_stopped() {
  const std::atomic<bool>* flag = detail::stop_flag.load(std::memory_order_acquire);
  if (flag != nullptr && flag->load(std::memory_order_relaxed)) throw Stopped();
  if (detail::range_has_failed()) throw Stopped();
}

}  // namespace kvbench
