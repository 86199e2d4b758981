// Work over an index range on all OpenMP threads. Ranges nest: inside a parallel range the inner
// one becomes tasks of the same team, so that no core idles while any work is left.
#pragma once

#include <omp.h>

#include <exception>
#include <mutex>

#include "core/matrix_view.hpp"
#include "core/stop.hpp"

namespace kvbench {

// Threads that a parallel range uses from now on; no result depends on it.
inline void set_thread_count(int threads) { omp_set_num_threads(threads); }
inline int thread_count() { return omp_get_max_threads(); }

// Calls body(i) for every i in [0, count), in no particular order; returns when all are done and
// rethrows the first exception. Told to stop, it leaves out what has not begun and throws Stopped.
// body must not rely on thread-local state across a nested range.
template <class Body>
void parallel_for(Index count, const Body& body) {
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto guarded = [&](Index i) {
    try {
      throw_if_stopped();
      body(i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  const auto tasks = [&] {
    const Index end = count;  // clang (14 to 19) crashes on a captured bound
#pragma omp taskloop grainsize(1) default(shared)
    for (Index i = 0; i < end; ++i) guarded(i);
  };
  if (omp_in_parallel() != 0) {
    tasks();
  } else {
#pragma omp parallel
#pragma omp single
    tasks();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace kvbench
