#include "run/read_ahead.hpp"

#include <utility>

#include "system/parallel.hpp"

namespace kvbench {

ReadAhead::ReadAhead(std::size_t count, Read read) : count_(count), read_(std::move(read)) {}

ReadAhead::~ReadAhead() {
  if (ahead_.valid()) ahead_.wait();
}

std::unique_ptr<StreamData> ReadAhead::next() {
  auto present =
      ahead_.valid() ? std::move(ahead_) : std::async(std::launch::deferred, read_, next_);
  ++next_;
  present.wait();
  if (next_ < count_ && thread_count() > 1) {
    ahead_ = std::async(std::launch::async, read_, next_);
  }
  return present.get();
}

}  // namespace kvbench
