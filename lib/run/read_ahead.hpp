// Reads the streams of a run, one ahead of the one that is worked on.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <memory>

#include "dump/dump.hpp"

namespace kvbench {

// Storage and decompression keep one core busy while the others compute; so at most two streams are
// in memory, the one handed out last and the next. With one thread nothing is read ahead.
class ReadAhead {
 public:
  // Reads stream i; called from another thread than next(), one call at a time.
  using Read = std::function<std::unique_ptr<StreamData>(std::size_t)>;

  ReadAhead(std::size_t count, Read read);
  ~ReadAhead();  // waits for the read that is under way
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Streams 0, 1, .., each once. Throws what reading it threw; the one after it can be asked for
  // all the same.
  std::unique_ptr<StreamData> next();

 private:
  std::size_t count_;
  Read read_;
  std::size_t next_ = 0;
  std::future<std::unique_ptr<StreamData>> ahead_;
};

}  // namespace kvbench
