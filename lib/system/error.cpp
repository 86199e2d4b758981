#include "system/error.hpp"

#include <fmt/format.h>

#include "system/printable.hpp"
#include "system/shortened.hpp"

namespace kvbench {
namespace {

// "file: place: what" of parts that may be very long.
std::string joined(const std::string& file, const std::string& place, const std::string& what) {
  const std::string begins = shortened(file) + ": ";
  return place.empty() ? begins + shortened(what)
                       : begins + shortened(place) + ": " + shortened(what);
}

}  // namespace

std::vector<std::string> reasons_of(const std::exception& error) {
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

void ErrorList::add(const std::string& place, const std::string& what) {
  add(one_line(joined(file_, place, what)));
}

void ErrorList::add(std::string message) {
  message = shortened(std::move(message));
  if (seen_.count(message) != 0) return;
  if (is_full()) {
    ++unlisted_;
    return;
  }
  seen_.insert(message);
  messages_.push_back(std::move(message));
}

void ErrorList::add_all(const std::vector<std::string>& messages) {
  for (const std::string& message : messages) add(message);
}

std::vector<std::string> ErrorList::messages() const {
  std::vector<std::string> messages = messages_;
  if (unlisted_ > 0) {
    const std::string more = fmt::format("and {} more errors; fix those above first", unlisted_);
    messages.push_back(file_.empty() ? more : one_line(file_) + ": " + more);
  }
  return messages;
}

void ErrorList::throw_if_any() const {
  if (!none()) throw InputError(messages());
}

}  // namespace kvbench
