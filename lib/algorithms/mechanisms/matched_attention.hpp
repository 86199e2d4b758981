// Tokens fitted to the attention of reference queries: weights so that their softmax sums are those
// of all tokens, and values so that their answers are.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/shared_work.hpp"
#include "core/stream.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/aligned.hpp"

namespace kvbench {

// Queries of all G query heads at rows [first_row, last_row), head by head, and the tokens that
// they attend to, softmax over these alone. Masked: a row sees tokens up to its own and within its
// window; else all of them.
struct References {
  Index first_row = 0;
  Index last_row = 0;
  bool masked = true;
  Index first_token = 0;
  Index last_token = 0;

  Index rows() const { return last_row - first_row; }
  Index tokens() const { return last_token - first_token; }
  auto operator<=>(const References&) const = default;
};

// Logits of references to some of their tokens.
class ReferenceLogits {
 public:
  // Tokens ascending. All must live as long.
  ReferenceLogits(const Stream& stream, const References& references,
                  std::vector<std::int32_t> tokens);

  Index count() const { return references_.rows() * stream_.shape.heads_per_kv; }
  Index tokens() const { return std::ssize(tokens_); }
  Index stride() const { return keys_.padded(); }  // stride of a block

  // x[q - first] of references q in [first, last), stride() apart; -inf where one does not see the
  // token.
  void block(Index first, Index last, double* x) const;

 private:
  const Stream& stream_;
  const References references_;
  const std::vector<std::int32_t> tokens_;
  const PackedKeys keys_;
};

// Shared work: what the references attend to. A reference that sees none of the tokens has sum 0
// and weighs nothing anywhere.
struct ReferenceAttention {
  struct Result {
    // By token, over references that see any: root of the mean square, largest and mean of a
    // reference's softmax.
    std::vector<double> rms, max, mean;
    std::vector<double> largest;  // by reference: its largest logit
    std::vector<double> sum;      // by reference: sum of exp(x - largest)
    AlignedDoubles outputs;       // [references, dv]: its exact answer
    Index seeing = 0;             // references that see any
  };
  References references;
  double size = 0.0;  // bytes of the result

  Result compute(const SharedContext& context) const;
  double bytes() const { return size; }
  auto operator<=>(const ReferenceAttention&) const = default;

 private:
  bool normalise(Index q, double* a, Result& out) const;
  void add_scores(const double* block, Index count, Index stride, Result& out) const;
};
ReferenceAttention reference_attention(const References& references, const StreamShape& shape);

// Logits x[0, count) become exp(x - largest), 0 where x is -inf. Returns the largest, -inf if there
// is none; throws CellError if they overflowed.
double exponentiate(double* x, Index count);

// How chosen tokens are fitted.
struct FitRule {
  bool weights = true;  // else all are 1
  bool values = true;   // else their own
  double ridge = 1e-6;  // times the squared Frobenius norm over the tokens
  Index steps = 2;      // projected gradient steps of the weights
  double lowest = 0.0;  // weights
  double highest = 0.0;
};

struct FittedRows {
  std::vector<double> weights;              // [t]
  std::vector<std::vector<double>> values;  // [t][dv]; empty: their own
  double sum_residual = 0.0;                // |M w - y| / |y|: of the softmax sums
  double output_residual = 0.0;             // |X C - Y|_F / |Y|_F: of the answers
};

// Bytes that fitting so many tokens takes, the fitted rows aside.
double fit_bytes(Index references, Index tokens, const StreamShape& shape, const FitRule& rule);

// Throws the CellError of a singular system.
[[noreturn]] void fail_singular_fit();

// Fits `tokens` (ascending, some of the references'). `weights`: those found with the tokens, taken
// as they are; empty: fitted by the rule. Throws CellError where a system is singular (ridge 0).
FittedRows fit_rows(const Stream& stream, const References& references,
                    const ReferenceAttention::Result& attention,
                    const std::vector<std::int32_t>& tokens, const FitRule& rule,
                    std::vector<double> weights = {});

}  // namespace kvbench
