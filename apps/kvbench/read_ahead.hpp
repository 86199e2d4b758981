// Reads the streams of a run, one ahead of the one that is worked on.
#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "dump/dump.hpp"

namespace kvbench {

struct StreamPlace {
  std::size_t dump = 0;  // index into the dumps
  std::string sequence;
  int layer = 0;
  int kv_head = 0;
  Index tokens = 0;
};

// Storage and decompression keep one core busy while the others compute; so at most two streams are
// in memory, the one handed out last and the next. With one thread nothing is read ahead.
class ReadAhead {
 public:
  // The dumps stay where they are as long as this lives.
  ReadAhead(const std::vector<Dump>& dumps, std::vector<StreamPlace> places);
  ~ReadAhead();  // waits for the read that is under way
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The streams in the order of the places, each once. Throws what Dump::read_stream threw; the one
  // after it can be asked for all the same.
  std::unique_ptr<StreamData> next();

 private:
  std::unique_ptr<StreamData> read(std::size_t place) const;

  const std::vector<Dump>& dumps_;
  std::vector<StreamPlace> places_;
  std::size_t next_ = 0;
  std::future<std::unique_ptr<StreamData>> ahead_;
};

}  // namespace kvbench
