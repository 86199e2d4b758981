// What a crash inside HDF5 says before the process ends.
#pragma once

#include <string>

namespace kvbench {

// From now on a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) of a thread that reads a dump
// writes to stderr which dump that was and ends the process with `exit_code`, since the file is to
// blame; where the signal had a handler before, a sanitizer's for one, that follows instead. Other
// faults take their course. For programs: what signals do is not a library's to decide.
void name_dump_on_crash(int exit_code);

// While it lives, this thread reads `path`, which must live as long. One at a time in the process
// (hdf5::Session).
class ReadingMark {
 public:
  explicit ReadingMark(const std::string& path);
  ~ReadingMark();
  ReadingMark(const ReadingMark&) = delete;
  ReadingMark& operator=(const ReadingMark&) = delete;

 private:
  const char* before_;
};

}  // namespace kvbench
