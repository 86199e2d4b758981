// What a run reports to its caller while it works; the run itself prints nothing.
#pragma once

#include <cstddef>
#include <string>

namespace kvbench {

// Called by one thread at a time.
class RunObserver {
 public:
  virtual ~RunObserver() = default;

  // The number of cells that will be computed; called first.
  virtual void begin(std::size_t cells) = 0;
  // What is worked on from now on, "sequence 0 layer 3 head 1".
  virtual void at(const std::string& place) = 0;
  // One more cell is in the journal.
  virtual void cell_done() = 0;
};

}  // namespace kvbench
