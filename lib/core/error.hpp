// What goes wrong through no fault of the program, said so that the user can mend it.
#pragma once

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

}  // namespace kvbench
