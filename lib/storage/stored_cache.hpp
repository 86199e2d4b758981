// One cell's cache as its storage writes it: which of the held vectors went through a codec, and
// what comes back of them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.hpp"
#include "numerics/aligned.hpp"
#include "sketch/held_vectors.hpp"
#include "sketch/sketch.hpp"
#include "storage/cache_view.hpp"
#include "storage/stored_stream.hpp"
#include "storage/written_logits.hpp"

namespace kvbench {

// The vectors of one tensor. Tokens are written in the order of their positions, when the codec
// says so; what is written stays so, also where tokens next to it are evicted.
class HeldTensor {
 public:
  // `tensor` must live as long.
  HeldTensor(const StoredTensor& tensor, Index prompt);

  // The held tokens, ascending, at an answer. `appended`: those of the last call come first, and
  // all others behind them.
  void hold(const std::vector<std::int32_t>& tokens, bool appended);
  // Number of held tokens that are written; the first written_first() of those held are, except
  // the codec's sinks.
  Index written_held() const;
  Index written_first() const { return first_; }
  bool is_written(Index token) const {
    return !tensor_.is_float() && (tensor_.on_arrival || written_[token] != 0);
  }
  // The vector of a held token as it is read.
  const double* row(Index token) const {
    return is_written(token) ? decoded_row(token) : tensor_.original.row(token);
  }
  // Decoded vector of a written token.
  const double* decoded_row(Index token) const { return decoded().row(token); }
  // [n, width] by token; rows of tokens that are not written have no meaning.
  ConstMatrix decoded() const;
  // A vector that belongs to no token, or replaces a token's: it has no position, and is not one
  // before RoPE. Throws CellError where the codec writes groups.
  void round_trip(const std::vector<double>& vector, std::vector<double>& out) const;

 private:
  void mark(Index token);
  void write_groups(const std::vector<std::int32_t>& tokens, Index written, bool appended);
  void write_group(const std::int32_t* tokens);

  const StoredTensor& tensor_;
  const Index prompt_;
  Index of_prompt_ = -1;               // held when the prompt ended; -1: not known yet
  std::vector<std::uint8_t> written_;  // [n] by token
  Index held_ = 0;
  Index written_held_ = 0;
  Index first_ = 0;
  std::vector<std::int32_t> grouped_;  // tokens of the groups written so far, in order
  ConstMatrix shared_;                 // vectors of AlignedGroups, while all of them are such
  AlignedDoubles decoded_;             // [n, width] by token, once a group is not
};

class StoredCache final : public CacheView {
 public:
  // `stored` must live as long. `keeps_all`: of a method that never evicts.
  StoredCache(const StoredStream& stored, bool keeps_all);

  void begin_block(const RowBlock& block, const std::vector<Index>& scored,
                   const LogitBlock* decoded) override;
  void end_block() override { logits_.expect({}); }
  void hold(const Sketch& sketch, Index row) override;
  void read(const Sketch& sketch) override;
  const KeptCounts& written() const override { return written_; }
  bool key_is_written(Index token) const override { return keys_.is_written(token); }
  bool value_is_written(Index token) const override { return values_.is_written(token); }
  const Stream& held() const override { return held_; }
  const Kernels& kernels() const override { return cpu_kernels(); }
  const HeldVectors* vectors() const override { return &vectors_; }
  QueryRow attended(const QueryRow& query) override;
  StoredErrors errors(const Sketch& sketch) const override;

 private:
  bool list_tokens(const Sketch& sketch, Index row);
  void forget_tokens();
  bool append_tokens(const Sketch& sketch);
  void list_all_tokens(const Sketch& sketch);
  void refuse_unwritable(const Sketch& sketch) const;
  void count(const Sketch& sketch);
  void write_own_vectors(const Sketch& sketch);
  // Tokens whose own key (value) is held, ascending.
  std::vector<std::int32_t> plain_tokens(const Sketch& sketch, CacheTensor tensor) const;
  void map_values();
  void find_logits();
  double exponentiate_held(const double* x, double least);

  const StoredStream& stored_;
  const bool keeps_all_;
  const bool on_arrival_;  // both tensors: no order of tokens matters
  Index row_ = -1;
  HeldTensor keys_;
  HeldTensor values_;
  std::vector<std::int32_t> key_tokens_, value_tokens_;  // held, ascending
  ChangeLog::Mark listed_;  // state of the sketch that they list, and its number of rows
  Index rows_listed_ = 0;
  bool one_row_each_ = false;  // rows are tokens in their order, each with its key and value
  KeptCounts written_;
  HeldVectors vectors_;
  std::vector<std::vector<double>> own_keys_seen_, own_values_seen_;
  AlignedDoubles both_values_;  // as StoredStream's, of values that are written in groups
  Stream held_;
  Index mapped_ = 0;  // how many of value_tokens_ value_row has as decoded
  const RowBlock* block_ = nullptr;
  const LogitBlock* decoded_ = nullptr;  // logits of the block; null unless every key is decoded
  WrittenLogits logits_;
  Index logits_row_ = -1;                                // whose logits they are
  std::vector<std::int32_t> written_keys_, other_keys_;  // key_tokens_, at that row, ascending
  std::size_t split_ = 0;                                // number of key_tokens_ among these
  std::vector<double> e_;                                // [n] of the query attended last
  std::vector<double> held_x_, held_e_;                  // by place in key_tokens_
};

}  // namespace kvbench
