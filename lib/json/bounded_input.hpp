// The bytes of a JSON file in which no text, number or space is longer than a limit: the parser
// holds each three times before anybody can refuse it, and line ends, in its message, eight times.
#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <iterator>
#include <vector>

namespace kvbench {

// Of a document without comments. A text counts with its escapes; a name is one, too.
class BoundedInput {
 public:
  // `refuse`, which throws, is called before a text of more than `longest` bytes is given out as a
  // whole, and a number or space of a block more than that.
  BoundedInput(std::istream& in, std::size_t longest, std::function<void()> refuse);

  // Input iterators over all that is left, for nlohmann::json::parse.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = char;

    Iterator() = default;
    explicit Iterator(BoundedInput& input) : input_(&input) { settle(); }
    char operator*() const { return input_->last_ = input_->block_[input_->at_]; }
    Iterator& operator++() {
      ++input_->at_;
      settle();
      return *this;
    }
    bool operator==(const Iterator& other) const { return input_ == other.input_; }
    bool operator!=(const Iterator& other) const { return input_ != other.input_; }

   private:
    void settle() {
      if (input_->at_ == input_->size_ && !input_->fill()) input_ = nullptr;
    }

    BoundedInput* input_ = nullptr;  // null at the end
  };
  Iterator begin() { return Iterator(*this); }
  static Iterator end() { return {}; }

  // The byte that was read last, ' ' before the first.
  char last() const { return last_; }

 private:
  bool fill();
  void look_through();
  void bound_run();

  std::istream& in_;
  std::size_t longest_;
  std::function<void()> refuse_;
  std::vector<char> block_;
  std::size_t at_ = 0, size_ = 0;
  char last_ = ' ';
  bool quoted_ = false, escaped_ = false;
  std::size_t length_ = 0;  // of the text that the last block ended in
  std::size_t run_ = 0;     // bytes since the last sign, to the end of the block
};

}  // namespace kvbench
