// An algorithm that was run elsewhere: what it kept is known row by row, and replayed.
#pragma once

#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "core/kept_cache.hpp"

namespace kvbench {

// Fills the sketch with the rows that are kept when each decode row is answered. Rows of tokens
// that left the sliding window go, as everywhere.
class KeptRowsReplay : public Algorithm {
 public:
  // `rows` fits the stream and the prompt (misfit() of core/kept_cache.hpp). The stream must live
  // as long.
  KeptRowsReplay(KeptRows rows, const Stream& stream, Index prompt);

  void extend(Index first, Index last) override;
  // Rows that are there from P on are there when the prompt ends.
  void finish_prompt() override;

 private:
  // Rows by when something happens to them, ascending.
  using Order = std::vector<std::int32_t>;

  Index arrival(const KeptRow& row) const;
  bool has_vectors_of_token(std::int32_t r) const;
  void follow(Index now);
  void add(std::int32_t r, Index now);
  void remove(std::int32_t r);
  Index place(const SketchRow& row);
  void clear_place(Index position);
  void leave_window(Index row);

  const Stream& stream_;
  const Index prompt_;
  KeptRows kept_;
  Order by_arrival_, by_end_, by_token_;
  std::size_t arrived_ = 0, ended_ = 0, left_ = 0;  // elements of these that are past
  std::vector<Index> position_of_;                  // by row; -1: not in the sketch
  std::vector<Index> appended_;                     // by decode token
  Index first_appended_ = 0;                        // the oldest that did not leave the window
  std::vector<Index> free_;                         // empty places
};

}  // namespace kvbench
