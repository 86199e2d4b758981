// Keys sorted by a hash of their directions, so that a query finds some of those that point as it
// does next to its own place: what hyperattention and kdeformer share.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "parameters/parameter_table.hpp"

namespace kvbench {

// `bits` sign bits of Gaussian projections, drawn for the KV head, are a code c; it is numbered
// c xor (c >> 1), Gray's code, as the released codes do. Codes of neighbouring numbers mostly
// differ in one bit.
class HashedKeys {
 public:
  HashedKeys(const CellContext& context, Index bits, std::string_view purpose);

  // Tokens [first, last) arrive, in order.
  void add(Index first, Index last);
  Index tokens() const { return std::ssize(sorted_); }
  Index plane_numbers() const { return std::ssize(planes_); }

  // The `block` tokens around the query's place in the order of (number, token), ascending; all
  // tokens where these are all. The place: behind the tokens of a lower number and half of those
  // of its own.
  std::vector<Index> around(const double* query, Index block) const;

  std::uint32_t number_of(const double* vector) const;

  static constexpr double kTokenBytes = 16.0;  // sorted, and merged in a place of as many

 private:
  const Stream& stream_;
  std::vector<double> planes_;                                  // [bits, d]
  std::vector<std::pair<std::uint32_t, std::int32_t>> sorted_;  // (number, token)
};

// Parameters of methods that read such a block and a sample of the other tokens.
template <class P>
std::vector<Field<P>> hashed_fields() {
  return {field("bits", &P::bits, "sign bits of the hash").at_most(24),
          field("block", &P::block,
                "tokens around the query's place among the sorted hashes; all are read")
              .at_least(1)
              .at_most(1e9),
          field("samples", &P::samples, "draws that stand for the others; 0: none").at_most(1e9)};
}

}  // namespace kvbench
