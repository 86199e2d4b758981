#include "python/interruptible.hpp"

#include <nanobind/nanobind.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "dump/dump.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};

class Worker;

thread_local bool is_worker = false;  // or a call on its behalf
Worker* current = nullptr;            // the one whose turn it is

// Held while there is work. In a child that is forked meanwhile nobody works.
std::timed_mutex& turn() {
  static std::timed_mutex mutex;
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    new (&turn()) std::timed_mutex;
    is_worker = false;
    current = nullptr;
    renew_dumps_after_fork();
    detail::stop_flag = nullptr;
  });
  static_cast<void>(registered);
  return mutex;
}

// The exception of Python's signal handler; null if none. Without the interpreter's lock.
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
          current = this;
          try {
            work();
          } catch (...) {
            error_ = std::current_exception();
          }
          const std::lock_guard<std::mutex> lock(mutex_);
          done_ = true;
          changed_.notify_all();
        }) {}

  // Until there is something to do, at most; whether the work is done.
  bool wait_a_moment() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kBetweenLooks, [&] { return done_ || !requests_.empty(); });
    return done_;
  }

  // By threads of the work.
  void request(const std::function<void()>& call) {
    Request request{call, false, nullptr};
    std::unique_lock<std::mutex> lock(mutex_);
    requests_.push_back(&request);
    changed_.notify_all();
    answered_.wait(lock, [&] { return request.is_answered; });
    if (request.error) std::rethrow_exception(request.error);
  }

  // By the thread that waits, without the interpreter's lock. An exception of Python is returned
  // and ends the work; after one, nothing is called any more.
  std::exception_ptr serve(std::exception_ptr raised, std::atomic<bool>& stop) {
    for (Request* request = next(); request != nullptr; request = next()) {
      std::exception_ptr error;
      if (stop) {
        error = std::make_exception_ptr(Stopped());
      } else {
        error = called(request->call);
        if (is_of_python(error)) {
          stop = true;
          raised = std::exchange(error, std::make_exception_ptr(Stopped()));
        }
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      request->error = error;
      request->is_answered = true;
      answered_.notify_all();
    }
    return raised;
  }

  std::exception_ptr join() {
    thread_.join();
    return error_;
  }

 private:
  struct Request {
    const std::function<void()>& call;
    bool is_answered = false;
    std::exception_ptr error;
  };

  Request* next() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (requests_.empty()) return nullptr;
    Request* request = requests_.front();
    requests_.pop_front();
    return request;
  }

  static std::exception_ptr called(const std::function<void()>& call) {
    const nb::gil_scoped_acquire locked;
    is_worker = true;
    std::exception_ptr error;
    try {
      call();
    } catch (...) {
      error = std::current_exception();
    }
    is_worker = false;
    return error;
  }

  static bool is_of_python(const std::exception_ptr& error) {
    if (!error) return false;
    try {
      std::rethrow_exception(error);
    } catch (const nb::python_error&) {
      return true;
    } catch (...) {
      return false;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;   // done_, requests_
  std::condition_variable answered_;  // a request
  std::deque<Request*> requests_;
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
      raised = worker.serve(raised, stop);
      if (!raised) raised = raised_by_signal();
      if (raised) stop = true;
    }
    error = worker.join();
    current = nullptr;
  }
  if (raised) std::rethrow_exception(raised);
  if (error) std::rethrow_exception(error);
}

void on_calling_thread(const std::function<void()>& call) { current->request(call); }

}  // namespace kvbench::python
