// The first reading of a file, in a process of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "system/error.hpp"

namespace kvbench {

// HDF5 1.10 crashes, never ends or asks for memory without end on some damaged or crafted files. So
// a file is first read in a child process, and this one touches it only if the child came through.
//
// The child is made by fork(): a library knows no program to start, and the child then does exactly
// what this process will do next, from the same state of the heap. It may be made next to other
// threads (OpenMP's, CUDA's): it calls nothing but HDF5, whose lock (hdf5::Session) this thread
// takes first, and the allocator, which glibc keeps usable; it leaves by _exit. A program that
// uses HDF5 from other threads without that lock must not do so meanwhile.
//
// Limits of the child: 256 MiB of memory beyond what this process has (not under sanitizers, which
// take address space of their own), 1 s of processor time from one step to the next, and 1 s more
// for each 16 MiB of `further_memory`; 60 s without a step, few open files and none written, no
// core file.
using Step = std::function<void()>;

// A child that died or was given up: this process must not read the file.
class FirstReadingError : public InputError {
 public:
  using InputError::InputError;
};

struct FirstReading {
  const char* what = "structure";                // is read, for messages
  const char* remedy = "copy or make it again";  // ends messages
  std::uint64_t further_memory = 0;              // bytes that the child may take besides
};

// Calls read(step) in the child; `read` calls step() before each object that it reads. Returns what
// `read` returns there, texts without a byte of value 0. Throws InputError: with the messages of
// the InputError that `read` threw there, or that the child died or was given up, with `path`, the
// reason and the remedy. Any other exception of `read` is left for the caller to meet when it reads
// the file itself; nothing is returned then. Throws IoError where the system gives no process.
std::vector<std::string> read_in_child(
    const std::string& path, const std::function<std::vector<std::string>(const Step&)>& read,
    const FirstReading& reading = {});

}  // namespace kvbench
