#include "json/faults.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kMostListed = 1000;

// A message is one line, whatever the file's keys and words hold.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    line += code < 0x20 || code == 0x7f ? fmt::format("\\u{:04x}", code) : std::string(1, c);
  }
  return line;
}

}  // namespace

void Faults::add(const std::string& pointer, const std::string& what) {
  std::string message =
      one_line(pointer.empty() ? file_ + ": " + what : file_ + ": " + pointer + ": " + what);
  add_message(std::move(message));
}

void Faults::add_all(const std::vector<std::string>& messages) {
  for (const std::string& message : messages) add_message(message);
}

void Faults::add_message(std::string message) {
  if (seen_.count(message) != 0) return;
  if (messages_.size() >= kMostListed) {
    ++unlisted_;
    return;
  }
  seen_.insert(message);
  messages_.push_back(std::move(message));
}

std::vector<std::string> Faults::messages() const {
  std::vector<std::string> messages = messages_;
  if (unlisted_ > 0) {
    messages.push_back(fmt::format("{}: and {} more faults; mend the ones above first",
                                   one_line(file_), unlisted_));
  }
  return messages;
}

void Faults::throw_if_any() const {
  if (!none()) throw InputError(messages());
}

std::string child(const std::string& pointer, const std::string& key) {
  std::string result = pointer + '/';
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

std::string child(const std::string& pointer, std::size_t index) {
  return pointer + '/' + std::to_string(index);
}

}  // namespace kvbench
