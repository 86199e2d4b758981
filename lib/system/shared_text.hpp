// An optional text that many share: 16 bytes for each of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvbench {

class SharedText {
 public:
  SharedText() = default;
  // NOLINTBEGIN(google-explicit-constructor)
  SharedText(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}
  SharedText(std::optional<std::string> text) {
    if (text) *this = SharedText(*std::move(text));
  }
  // NOLINTEND(google-explicit-constructor)

  bool has_value() const { return text_ != nullptr; }
  explicit operator bool() const { return has_value(); }
  const std::string& operator*() const { return *text_; }
  const std::string* operator->() const { return text_.get(); }
  std::string value_or(std::string_view other) const { return text_ ? *text_ : std::string(other); }

  friend bool operator==(const SharedText& a, const SharedText& b) {
    return a.text_ == b.text_ || (a.text_ && b.text_ && *a.text_ == *b.text_);
  }
  friend bool operator==(const SharedText& a, std::string_view b) {
    return a.text_ && *a.text_ == b;
  }

 private:
  std::shared_ptr<const std::string> text_;
};

}  // namespace kvbench
