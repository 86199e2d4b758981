#include "read_ahead.hpp"

#include <utility>

#include "core/parallel.hpp"

namespace kvbench {

ReadAhead::ReadAhead(const std::vector<Dump>& dumps, std::vector<StreamPlace> places)
    : dumps_(dumps), places_(std::move(places)) {}

ReadAhead::~ReadAhead() {
  if (ahead_.valid()) ahead_.wait();
}

std::unique_ptr<StreamData> ReadAhead::read(std::size_t place) const {
  const StreamPlace& at = places_[place];
  return dumps_[at.dump].read_stream(at.sequence, at.layer, at.kv_head, at.tokens);
}

std::unique_ptr<StreamData> ReadAhead::next() {
  auto present = ahead_.valid() ? std::move(ahead_)
                                : std::async(std::launch::deferred, &ReadAhead::read, this, next_);
  ++next_;
  present.wait();
  if (next_ < places_.size() && thread_count() > 1) {
    ahead_ = std::async(std::launch::async, &ReadAhead::read, this, next_);
  }
  return present.get();
}

}  // namespace kvbench
