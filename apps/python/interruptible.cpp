#include "python/interruptible.hpp"

#include <nanobind/nanobind.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "core/error.hpp"
#include "core/stop.hpp"
#include "dump/dump.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};

thread_local bool is_worker = false;

// Held while there is work. In a child that is forked meanwhile nobody works.
std::timed_mutex& turn() {
  static std::timed_mutex mutex;
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    new (&turn()) std::timed_mutex;
    renew_dumps_after_fork();
    detail::stop_flag = nullptr;
  });
  static_cast<void>(registered);
  return mutex;
}

// What a signal handler of Python raised; null if nothing. Without the interpreter's lock.
std::exception_ptr raised_by_signal() {
  const nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() == 0) return nullptr;
  return std::make_exception_ptr(nb::python_error());
}

// A thread that does `work`.
class Worker {
 public:
  explicit Worker(const std::function<void()>& work)
      : thread_([this, &work] {
          is_worker = true;
          try {
            work();
          } catch (...) {
            error_ = std::current_exception();
          }
          const std::lock_guard<std::mutex> lock(mutex_);
          done_ = true;
          changed_.notify_all();
        }) {}

  bool wait_a_moment() {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kBetweenLooks, [&] { return done_; });
  }

  std::exception_ptr join() {
    thread_.join();
    return error_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

void run_interruptible(const std::function<void()>& work, std::atomic<bool>& stop) {
  if (is_worker) {
    throw InputError("kvbench: called by what it is computing; call it before or after that");
  }
  std::exception_ptr raised;
  std::exception_ptr error;
  {
    const nb::gil_scoped_release unlocked;
    std::unique_lock<std::timed_mutex> own_turn(turn(), std::defer_lock);
    while (!own_turn.try_lock_for(kBetweenLooks)) {
      if (const auto what = raised_by_signal()) std::rethrow_exception(what);
    }
    Worker worker(work);
    while (!worker.wait_a_moment()) {
      if (!raised) raised = raised_by_signal();
      if (raised) stop = true;
    }
    error = worker.join();
  }
  if (raised) std::rethrow_exception(raised);
  if (error) std::rethrow_exception(error);
}

}  // namespace kvbench::python
