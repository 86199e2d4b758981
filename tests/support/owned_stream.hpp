// Small random streams for tests: the views of a Stream together with the memory behind them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/stream.hpp"

namespace kvbench::test {

enum class StreamKind {
  kGaussian,        // everything N(0, 1)
  kClustered,       // keys in five tight balls, values of lognormal norms
  kTies,            // small integers: exact ties of scores and distances abound
  kEqualKeys,       // all keys are the same vector
  kZeroKeys,        // all keys are zero
  kZeroValues,      // all values are zero
  kSomeZeroValues,  // every third value is zero, the first two included
  kHugeLogits,      // gaussian, scaled so that the largest |logit| is 1e4
};

struct StreamSpec {
  Index tokens = 40;
  Index d = 8;
  Index dv = 8;
  int heads_per_kv = 1;
  Index window = 0;
  double softcap = 0.0;
  StreamKind kind = StreamKind::kGaussian;
  std::uint64_t seed = 1;
  Index first_query = 0;
  double query_size = 1.0;  // multiplies the queries
  int rope_pairs = 0;       // pairs of dimensions that RoPE turns, 0: no RoPE data
  bool rope_interleaved = false;
  bool sinks = false;  // the size of the logits, the last head's above all of them
  bool alibi = false;  // slopes 0.25, 0.0625, ..
  bool causal = true;
  Index chunk = 0;
  bool value_in_key = false;  // dv <= d
  Index repeated = 0;         // the prompt that the model repeats; 0: half of the tokens
};

// Owns what `stream` points to. Not copied or moved, so that the views stay valid.
struct OwnedStream {
  Stream stream;
  std::vector<double> keys;
  std::vector<double> values;
  std::vector<std::vector<double>> queries;
  std::vector<std::vector<double>> wo_v_l1;  // made up from the values by connect()
  // Likewise from the keys of the prompt that is repeated; what is there stays.
  Index repeated = 0;  // 0: half of the tokens
  std::vector<std::vector<double>> repeat_queries;
  std::vector<double> repeat_keys;

  OwnedStream() = default;
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  // Points the views at the memory; call after the vectors changed size.
  void connect();

 private:
  void make_up_repeat();
};

std::unique_ptr<OwnedStream> make_stream(const StreamSpec& spec);

// The same, whose model repeats a prompt of so many tokens.
inline StreamSpec repeating(StreamSpec spec, Index prompt) {
  spec.repeated = prompt;
  return spec;
}

// A stream from rows written out by hand. queries: one list of rows per query head.
using Rows = std::vector<std::vector<double>>;
std::unique_ptr<OwnedStream> stream_of(const Rows& keys, const Rows& values,
                                       const std::vector<Rows>& queries, double scale = 1.0,
                                       Index window = 0);

// The first `tokens` tokens of a stream.
std::unique_ptr<OwnedStream> truncated(const Stream& stream, Index tokens);

// The same stream with other keys, values and queries from token `first` on.
std::unique_ptr<OwnedStream> with_other_future(const Stream& stream, Index first,
                                               std::uint64_t seed);

}  // namespace kvbench::test
