// Errors by their cause: the user's input, the system, the device, a cell, or a bug. Consequences
// (exit code, a failed cell) are decided where an error is caught.
#pragma once

#include <exception>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kvbench {

// Error in what the user gave: command line, sweep, dump, bounds, results. Each message is one line
// that names file, place and remedy; all that were found are carried together. Exit code 2.
class InputError : public std::runtime_error {
 public:
  explicit InputError(std::string message)
      : InputError(std::vector<std::string>{std::move(message)}) {}
  explicit InputError(std::vector<std::string> messages)
      : std::runtime_error(messages.empty() ? "bad input" : messages.front()),
        messages_(std::move(messages)) {}

  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

// Refusal of the system: a full disk, a folder that cannot be written or went away. Exit code 2
// before any work has begun, else 5: what was finished is kept.
class IoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The device failed for good (lost, reset, a fault in a kernel): nothing more can be computed on
// it. Exit codes as of IoError.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A cell that cannot be computed from finite, well-formed input. Its record becomes `failed`; at
// the end exit code 3.
class CellError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Message of a cell that ran out of memory.
inline constexpr const char* kNoMemoryForCell =
    "not enough memory; choose fewer tokens (select.tokens), fewer rows (evaluate.rows) or fewer "
    "threads (--threads)";

// Any other exception is a bug: exit code 1. This one names what was being done when it showed
// itself, with the first exception nested in it (std::throw_with_nested). To be reported, not
// handled.
class BugError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Messages of an exception and of those nested in it, outermost first.
std::vector<std::string> reasons_of(const std::exception& error);

// Collects what is wrong with the input, so that the user hears of all of it at once.
class ErrorList {
 public:
  ErrorList() = default;
  // `file`, as the user named it, begins every message of add(place, what).
  explicit ErrorList(std::string file) : file_(std::move(file)) {}

  // "file: place: what", or "file: what" if `place` is empty; one line, whatever the words hold.
  void add(const std::string& place, const std::string& what);
  // A message as it is. Saying the same twice is saying it once; after the first thousand only
  // their number is kept.
  void add(std::string message);
  void add_all(const std::vector<std::string>& messages);
  // Calls `step`; an InputError of it is kept.
  template <class Step>
  void gather(const Step& step) {
    try {
      step();
    } catch (const InputError& error) {
      add_all(error.messages());
    }
  }

  bool none() const { return messages_.empty(); }
  std::size_t count() const { return messages_.size() + unlisted_; }
  // True once the list is full; callers may then skip expensive checks.
  bool is_full() const { return messages_.size() >= kMaxListed; }
  // All that would be thrown.
  std::vector<std::string> messages() const;
  // Throws InputError with all of them, if there are any.
  void throw_if_any() const;

 private:
  static constexpr std::size_t kMaxListed = 1000;

  std::string file_;
  std::vector<std::string> messages_;
  std::set<std::string> seen_;
  std::size_t unlisted_ = 0;
};

}  // namespace kvbench
