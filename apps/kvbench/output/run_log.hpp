// Reports of a run as lines on standard error.
#pragma once

#include <exception>
#include <string>
#include <system_error>

#include "output/progress.hpp"
#include "run/execute.hpp"
#include "run/run_sweep.hpp"

namespace kvbench {

// Notes, progress, and the table and counts that end a run.
class RunLog : public Progress {
 public:
  // `quiet` leaves warnings and reasons of failures.
  explicit RunLog(bool quiet) : Progress(quiet), quiet_(quiet) {}

  void note(const std::string& text) override;
  void warning(const std::string& text) override;
  void opened(const Execution& execution, const std::string& folder) override;
  void finished(const Execution& execution, const RunOutcome& outcome) override;

 private:
  bool quiet_;
};

// The error that ended a run's work, and how to go on.
void log_broken(const std::exception_ptr& error);

// Why a thread could not be started.
void log_no_thread(const std::system_error& error);

}  // namespace kvbench
