// Work over an index range on all OpenMP threads. Ranges nest: a thread that waits for its range
// takes part in the ranges below it, so that no core idles while any of its work is left.
#pragma once

#include <omp.h>

#include "system/index.hpp"

namespace kvbench {

// Threads that a parallel range uses from now on; no result depends on it.
inline void set_thread_count(int threads) { omp_set_num_threads(threads); }
inline int thread_count() { return omp_get_max_threads(); }

// Starts the threads of parallel ranges and returns how many there are, this one included: fewer
// than thread_count() was if the system gives no more, where OpenMP would end the program. Some
// room is left for other threads. Throws InputError if OMP_STACKSIZE leaves them too little stack.
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
