// The dump reader: any bytes under a dump's name. Refused with the file's name, or read: structure,
// fingerprint, every stream and stored output of a size that this process may hold.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "dump/dump.hpp"
#include "fuzz/promise.hpp"
#include "fuzz/scratch_folder.hpp"

using namespace kvbench;
using fuzz::promise;

namespace {

const std::string& path() {
  static const std::string made = fuzz::kScratchFolder.file("dump.h5");
  return made;
}

// Numbers that a stream of the layer holds.
double numbers(const LayerInfo& layer) {
  const Index heads = layer.query_heads / layer.kv_heads;
  return static_cast<double>(layer.tokens) * static_cast<double>(layer.d + layer.dv) +
         static_cast<double>(heads) * static_cast<double>(layer.query_rows) *
             static_cast<double>(layer.d);
}

double stored_numbers(const DumpInfo& info) {
  double sum = 0.0;
  for (const SequenceInfo& sequence : info.sequences) {
    for (const LayerInfo& layer : sequence.layers) {
      sum += numbers(layer) * static_cast<double>(layer.kv_heads);
    }
  }
  return sum;
}

void read_layer(const Dump& dump, const std::string& sequence, const LayerInfo& layer) {
  for (int head = 0; head < layer.kv_heads; ++head) {
    try {
      const auto data = dump.read_stream(sequence, layer.index, head);
      promise(data->stream.keys.rows == layer.tokens, "a stream of another length");
    } catch (const InputError& error) {
      fuzz::check_refusal(error, path());
    }
  }
  if (layer.out_rows == 0) return;
  try {
    dump.read_out(sequence, layer.index, 0);
  } catch (const InputError& error) {
    fuzz::check_refusal(error, path());
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // More than this a caller refuses before it reads; here it would only be slow.
  constexpr double kMaxNumbers = 1e6;
  std::ofstream(path(), std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    // Not in a child: a crash is to be this process's, which the fuzzer sees.
    const Dump dump(path(), {.first_in_child = false});
    if (stored_numbers(dump.info()) > kMaxNumbers) return 0;
    try {
      promise(dump.fingerprint().size() == 32, "a fingerprint of another size");
    } catch (const InputError& error) {
      fuzz::check_refusal(error, path());
    }
    for (const SequenceInfo& sequence : dump.info().sequences) {
      for (const LayerInfo& layer : sequence.layers) read_layer(dump, sequence.name, layer);
    }
  } catch (const InputError& error) {
    fuzz::check_refusal(error, path());
  }
  return 0;
}
