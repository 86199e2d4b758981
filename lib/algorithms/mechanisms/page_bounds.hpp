// Least and largest entries of the keys of each page of consecutive tokens, channel by channel.
#pragma once

#include <algorithm>
#include <vector>

#include "core/stream.hpp"

namespace kvbench {

class PageBounds {
 public:
  // `page`: tokens of a page, at least 1.
  PageBounds(const Stream& stream, Index page) : stream_(stream), page_(page) {
    const auto numbers = static_cast<std::size_t>(most_numbers(stream.shape, page));
    low_.reserve(numbers);
    high_.reserve(numbers);
  }

  // Least entries of all pages of a stream at most; there are as many largest ones.
  static Index most_numbers(const StreamShape& shape, Index page) {
    return (shape.tokens / page + 1) * shape.d;
  }

  // Tokens [first, last) arrive, in order and without gaps.
  void extend(Index first, Index last) {
    const Index d = stream_.shape.d;
    for (Index token = first; token < last; ++token) {
      const double* key = stream_.keys.row(token);
      if (token % page_ == 0) {
        low_.insert(low_.end(), key, key + d);
        high_.insert(high_.end(), key, key + d);
        continue;
      }
      double* low = low_.data() + token / page_ * d;
      double* high = high_.data() + token / page_ * d;
      for (Index c = 0; c < d; ++c) {
        low[c] = std::min(low[c], key[c]);
        high[c] = std::max(high[c], key[c]);
      }
    }
  }

  Index pages() const { return std::ssize(low_) / stream_.shape.d; }
  ConstMatrix low() const { return {low_.data(), pages(), stream_.shape.d}; }
  ConstMatrix high() const { return {high_.data(), pages(), stream_.shape.d}; }

 private:
  const Stream& stream_;
  Index page_;
  std::vector<double> low_;   // [pages, d]
  std::vector<double> high_;  // [pages, d]
};

}  // namespace kvbench
