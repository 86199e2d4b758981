// Reports of a run to its caller while it works; the run itself prints nothing.
#pragma once

#include <cstddef>
#include <string>

namespace kvbench {

struct Execution;
struct RunOutcome;

// Called by one thread at a time.
class RunObserver {
 public:
  virtual ~RunObserver() = default;

  // A sentence about something that is allowed and may be a mistake.
  virtual void note(const std::string& /*text*/) {}
  // A sentence about something that was lost or refused, without which the run goes on.
  virtual void warning(const std::string& /*text*/) {}
  // The folder is open and its journal read; nothing was computed yet.
  virtual void opened(const Execution& /*execution*/, const std::string& /*folder*/) {}
  // The number of cells that will be computed.
  virtual void begin(std::size_t cells) = 0;
  // The place that is worked on from now on, "sequence 0 layer 3 head 1".
  virtual void at(const std::string& place) = 0;
  // One more cell is in the journal.
  virtual void cell_done() = 0;
  // No cell follows, whether all are done or an error ended the work.
  virtual void end() {}
  // results.json is written.
  virtual void finished(const Execution& /*execution*/, const RunOutcome& /*outcome*/) {}
};

}  // namespace kvbench
