// What goes wrong through no fault of the program, said so that the user can mend it.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kvbench {

// Bad input: command line, sweep, dump or output place (exit code 2). Each message is one line that
// names file, place and remedy; all faults that were found are carried together.
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

// What the system refused: a full disk, a folder that cannot be written or went away. Ends with
// exit code 2 before any work has begun, else with 5: what was finished before is kept.
class IoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Gathers what several steps throw, where each is worth trying whatever became of the others.
class InputFaults {
 public:
  // Calls `step`; an InputError of it is kept.
  template <class Step>
  void gather(const Step& step) {
    try {
      step();
    } catch (const InputError& error) {
      messages_.insert(messages_.end(), error.messages().begin(), error.messages().end());
    }
  }
  void add(std::string message) { messages_.push_back(std::move(message)); }
  bool none() const { return messages_.empty(); }

  // Throws all of them as one InputError, if there are any.
  void throw_if_any() {
    if (!messages_.empty()) throw InputError(std::move(messages_));
  }

 private:
  std::vector<std::string> messages_;
};

// A cell that cannot be computed from finite, well-formed input (its record becomes `failed`).
class CellError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a cell is recorded with where memory ran out.
inline constexpr const char* kNoMemoryForCell =
    "not enough memory; choose fewer tokens (select.tokens), fewer rows (evaluate.rows) or fewer "
    "threads (--threads)";

// Any other exception is a bug. What was being done when it showed itself, with the exception
// nested in it (std::throw_with_nested); neither is to be caught but to be reported (reasons_of).
class BugError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Messages of an exception and of those nested in it, outermost first.
inline std::vector<std::string> reasons_of(const std::exception& error) {
  std::vector<std::string> reasons = {error.what()};
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& nested) {
    const std::vector<std::string> further = reasons_of(nested);
    reasons.insert(reasons.end(), further.begin(), further.end());
  } catch (...) {
    reasons.emplace_back("an exception of unknown type");
  }
  return reasons;
}

}  // namespace kvbench
