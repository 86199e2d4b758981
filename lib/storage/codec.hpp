// A codec: how held keys, or values, of one KV head are written down, and what is read back. An
// algorithm decides on the original vectors; what it holds goes through a codec, and answers are
// made of what comes back.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/calibration.hpp"
#include "core/stream.hpp"
#include "numerics/matrix_view.hpp"
#include "parameters/parameter_table.hpp"
#include "parameters/parameters.hpp"
#include "parameters/struct_function.hpp"

namespace kvbench {

enum class CacheTensor { kKeys, kValues };

// Numbers of a vector.
inline Index width_of(const StreamShape& shape, CacheTensor tensor) {
  return tensor == CacheTensor::kKeys ? shape.d : shape.dv;
}

// Stream, prompt, seed and tensor that a codec is made for.
struct CodecContext {
  const Stream& stream;
  Index prompt;  // P
  std::uint32_t seed;
  CacheTensor tensor;
  Index element_bytes = 2;  // bytes of an unquantised number

  Index width() const { return width_of(stream.shape, tensor); }
};

class Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;

  // Vectors that are encoded together, a block: 1, or held tokens that follow each other.
  virtual Index group() const { return 1; }
  // Bytes of a block, everything that decoding reads: codes, scales, zeros, norms, indices.
  virtual Index bytes() const = 0;
  // Bytes that memory counts: fewer where numbers are unquantised, which count as the memory's
  // numbers do.
  virtual Index counted_bytes() const { return bytes(); }
  // Bytes kept once per KV head besides the blocks: rotations, tables, masks.
  virtual Index shared_bytes() const { return 0; }
  // How many of the oldest held vectors are written when `held` of them are held, the one of the
  // row that is answered included, and `of_prompt` were held when the prompt ended; the others are
  // held unquantised. Does not fall as `held` grows; a multiple of group().
  virtual Index written(Index held, Index of_prompt) const {
    static_cast<void>(of_prompt);
    return held / group() * group();
  }
  // The oldest held vectors that stay unquantised: written() counts those behind them. 0 unless
  // group() is 1.
  virtual Index sinks() const { return 0; }
  // Whether vectors are written when the prompt ends and none later, however held tokens change.
  virtual bool once() const { return false; }
  // `vectors`: [group(), width]; `code`: [bytes()]. Throws CellError where a number cannot be
  // written (beyond the range of a scale's format).
  virtual void encode(ConstMatrix vectors, std::byte* code) const = 0;
  // `vectors`: [group(), width].
  virtual void decode(const std::byte* code, MutableMatrix vectors) const = 0;

  // Blocks one after the other, vectors.rows / group() of them, each as encode() and decode() have
  // it. For codecs that are faster with many at a time.
  virtual void encode_all(ConstMatrix vectors, std::byte* codes) const {
    for (Index first = 0; first < vectors.rows; first += group(), codes += bytes()) {
      encode({vectors.row(first), group(), vectors.cols, vectors.stride}, codes);
    }
  }
  virtual void decode_all(const std::byte* codes, MutableMatrix vectors) const {
    for (Index first = 0; first < vectors.rows; first += group(), codes += bytes()) {
      decode(codes, {vectors.row(first), group(), vectors.cols, vectors.stride});
    }
  }
};

// Facts of a codec known beforehand, as functions of its parameters.
template <class P>
struct CodecFunctions {
  FunctionOf<P, bool()> randomised;  // empty: it is not
  // A combination that no stream could satisfy: (parameter, clause).
  FunctionOf<P, std::optional<std::pair<std::string, std::string>>()> validate;
  // Why it cannot write such vectors, with the remedy; the cell is skipped with that reason.
  FunctionOf<P, std::optional<std::string>(const StreamShape&, CacheTensor, Index prompt)>
      skip_reason;
  // Why its vectors are not rotated before it sees them, as a clause about the rotation: its
  // numbers are fitted to the unquantised stream. None: they may be.
  FunctionOf<P, std::optional<std::string>()> not_rotated;
  // Numbers of one KV head that other texts can give, for calibration files; empty: the codec is
  // not calibrated. Throws CellError if the texts have none.
  FunctionOf<P, CalibratedNumbers(const CalibrationTexts&)> calibrate;
  // Whether these numbers are one for all KV heads of a layer, whose streams the texts then have,
  // head after head.
  FunctionOf<P, bool()> calibrates_layer;
  FunctionOf<P, std::unique_ptr<Codec>(const CodecContext&)> create;
};

// Facts of a codec whatever its parameters.
struct CodecFacts {
  std::string id;
  std::string title;   // one line
  std::string source;  // standard, paper or code
  std::string bits;    // per number, as text: "8.5", "b + 32/d"
  // Parameters that `calibrate` depends on.
  std::vector<std::string> calibration_params;
  bool of_keys = true;
  bool of_values = true;
  // False: with no parameters do its vectors go behind a rotation, and it has no `rotate`.
  bool can_rotate = true;
};

struct CodecDescription : CodecFacts, CodecFunctions<Params> {
  std::vector<Parameter> parameters;

  CodecDescription();
  CodecDescription(const CodecDescription&);
  CodecDescription(CodecDescription&&) noexcept;
  CodecDescription& operator=(const CodecDescription&);
  CodecDescription& operator=(CodecDescription&&) noexcept;
  ~CodecDescription();
};

CodecDescription described(const CodecFacts& facts, const UntypedTable& table);

// A codec as its file writes it, with a struct P for its parameters (parameter_table.hpp).
template <class P>
struct TypedCodec : CodecFacts, CodecFunctions<P> {
  ParameterTable<P> parameters;

  // NOLINTNEXTLINE(google-explicit-constructor): what describe_<id>() returns
  operator CodecDescription() const {
    CodecDescription d = described(*this, parameters);
    const std::shared_ptr<const UntypedTable> table = shared_table(parameters);
    kvbench::bind(table, this->randomised, d.randomised);
    kvbench::bind(table, this->validate, d.validate);
    kvbench::bind(table, this->skip_reason, d.skip_reason);
    kvbench::bind(table, this->not_rotated, d.not_rotated);
    kvbench::bind(table, this->calibrate, d.calibrate);
    kvbench::bind(table, this->calibrates_layer, d.calibrates_layer);
    kvbench::bind(table, this->create, d.create);
    return d;
  }
};

}  // namespace kvbench
