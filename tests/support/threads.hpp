// A thread count for one scope.
#pragma once

#include "system/parallel.hpp"

namespace kvbench::test {

// Sets the number of threads of parallel ranges, and restores it at the end of the scope.
class Threads {
 public:
  explicit Threads(int count) : before_(thread_count()) { set_thread_count(count); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace kvbench::test
