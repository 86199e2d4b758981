// What a crash inside HDF5 says before the process ends.
#pragma once

#include <string>

namespace kvbench {

// From now on a fault of the process (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) first writes to
// stderr which dump the thread at fault was reading, if it was, and then takes its course: the
// handler that was there before, a sanitizer's for one, or the signal's default. For programs: what
// signals do is not a library's to decide.
void name_dump_on_crash();

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
