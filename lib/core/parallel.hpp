// Work over an index range on several threads. Ranges nest: a thread that waits for its range
// takes part in the ranges below it, so that no core idles while any of its work is left.
#pragma once

#include <omp.h>

#include "core/matrix_view.hpp"

namespace kvbench {

// Threads that a parallel range of this thread uses from now on; no result depends on it. OpenMP
// keeps the number, so that its environment variables give the default.
inline void set_thread_count(int threads) { omp_set_num_threads(threads); }
inline int thread_count() { return omp_get_max_threads(); }

// Starts the threads that this thread's ranges will use, and returns how many there are, this one
// included: fewer than thread_count() if the system gives no more. Some room is then left for other
// threads of the program.
int start_threads();

namespace detail {
void run_range(Index count, void (*call)(const void* body, Index i), const void* body);
}

// Calls body(i) for every i in [0, count), in no particular order; returns when all are done and
// rethrows the first exception. When stopped, or once an index has thrown, it skips indices not
// yet started, in nested ranges too; when stopped, it throws Stopped. body must not rely on
// thread-local state across a nested range.
template <class Body>
void parallel_for(Index count, const Body& body) {
  detail::run_range(
      count, [](const void* b, Index i) { (*static_cast<const Body*>(b))(i); }, &body);
}

}  // namespace kvbench
