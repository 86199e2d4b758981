#include "json/bounded_input.hpp"

#include <cstring>
#include <string_view>
#include <utility>

namespace kvbench {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;

}  // namespace

BoundedInput::BoundedInput(std::istream& in, std::size_t longest, std::function<void()> refuse)
    : in_(in), longest_(longest), refuse_(std::move(refuse)), block_(kBlock) {}

bool BoundedInput::fill() {
  at_ = 0;
  size_ = static_cast<std::size_t>(
      in_.rdbuf()->sgetn(block_.data(), static_cast<std::streamsize>(block_.size())));
  look_through();
  bound_run();
  return size_ > 0;
}

void BoundedInput::bound_run() {
  const std::size_t sign = std::string_view(block_.data(), size_).find_last_of(",:[]{}\"");
  run_ = sign == std::string_view::npos ? run_ + size_ : size_ - sign - 1;
  if (run_ > longest_) refuse_();
}

void BoundedInput::look_through() {
  std::size_t at = 0;
  while (at < size_) {
    if (!quoted_) {
      const void* quote = std::memchr(block_.data() + at, '"', size_ - at);
      if (quote == nullptr) return;
      at = static_cast<std::size_t>(static_cast<const char*>(quote) - block_.data()) + 1;
      quoted_ = true;
      length_ = 0;
    }
    for (; at < size_ && quoted_; ++at) {
      const char c = block_[at];
      quoted_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      length_ += quoted_ ? 1 : 0;
    }
    if (length_ > longest_) refuse_();
  }
}

}  // namespace kvbench
