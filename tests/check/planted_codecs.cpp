// The codecs with a bug in one of them, linked into a program that is otherwise kvbench.
//
// KVBENCH_PLANTED_CODEC=turboquant reads its codebook one step off: each code stands for the next
// point, the last one for itself, and with one bit of form prod, which has signs alone, each sign
// is its neighbour's. KVBENCH_PLANTED_CODEC=qjl reads each sign from the place of the next one.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The true list under another name: this file takes the place of codec_registry.cpp.
#define all_codecs true_codecs
#define find_codec find_true_codec
#include "storage/codec_registry.cpp"  // NOLINT(bugprone-suspicious-include)
#undef all_codecs
#undef find_codec

#include "storage/bit_stream.hpp"

namespace kvbench {

const std::vector<CodecDescription>& all_codecs();
const CodecDescription* find_codec(const std::string& id);

namespace {

// Where in a block the codes of one vector are.
struct Codes {
  Index first_byte;
  Index count;
  int bits;
  bool are_signs;
};

void read_off(const Codes& at, std::byte* code) {
  std::vector<std::uint32_t> codes(at.count);
  BitReader in(code + at.first_byte);
  for (std::uint32_t& each : codes) each = in.get(at.bits);
  if (at.are_signs) {
    std::rotate(codes.begin(), codes.begin() + 1, codes.end());
  } else {
    for (std::uint32_t& each : codes) each = std::min(each + 1, (1U << at.bits) - 1);
  }
  BitWriter out(code + at.first_byte);
  for (const std::uint32_t each : codes) out.put(each, at.bits);
  out.finish();
}

class ReadOff final : public Codec {
 public:
  ReadOff(std::unique_ptr<Codec> inner, std::vector<Codes> at)
      : inner_(std::move(inner)), at_(std::move(at)) {}

  Index group() const override { return inner_->group(); }
  Index bytes() const override { return inner_->bytes(); }
  Index shared_bytes() const override { return inner_->shared_bytes(); }
  Index written(Index held, Index of_prompt) const override {
    return inner_->written(held, of_prompt);
  }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    inner_->encode(vectors, code);
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    std::vector<std::byte> off(code, code + bytes());
    for (const Codes& at : at_) read_off(at, off.data());
    inner_->decode(off.data(), vectors);
  }

 private:
  std::unique_ptr<Codec> inner_;
  std::vector<Codes> at_;
};

Index number_of(const Params& params, const char* name) {
  return std::get<std::int64_t>(params.at(name));
}

std::vector<Codes> codes_of(const std::string& id, const Params& params, const Codec& codec,
                            Index width) {
  const Index bits = number_of(params, "bits");
  if (id == "turboquant") {
    const bool is_prod = params.at("form") == Value(std::string("prod"));
    if (is_prod && bits == 1) return {{0, width, 1, true}};
    return {{0, width, static_cast<int>(is_prod ? bits - 1 : bits), false}};
  }
  // Each token has its norm and its signs, without outliers.
  const Index token_bytes = codec.bytes() / codec.group();
  std::vector<Codes> all;
  for (Index i = 0; i < codec.group(); ++i) {
    all.push_back({(i + 1) * token_bytes - packed_bytes(bits, 1), bits, 1, true});
  }
  return all;
}

}  // namespace

const std::vector<CodecDescription>& all_codecs() {
  static const std::vector<CodecDescription> codecs = [] {
    std::vector<CodecDescription> all = true_codecs();
    const char* planted = std::getenv("KVBENCH_PLANTED_CODEC");
    for (CodecDescription& codec : all) {
      if (planted == nullptr || codec.id != planted) continue;
      codec.create = [id = codec.id, create = codec.create](
                         const Params& params,
                         const CodecContext& context) -> std::unique_ptr<Codec> {
        std::unique_ptr<Codec> inner = create(params, context);
        std::vector<Codes> at = codes_of(id, params, *inner, context.width());
        return std::make_unique<ReadOff>(std::move(inner), std::move(at));
      };
    }
    return all;
  }();
  return codecs;
}

const CodecDescription* find_codec(const std::string& id) {
  const auto& codecs = all_codecs();
  const auto found = std::find_if(codecs.begin(), codecs.end(),
                                  [&](const CodecDescription& codec) { return codec.id == id; });
  return found == codecs.end() ? nullptr : &*found;
}

}  // namespace kvbench
