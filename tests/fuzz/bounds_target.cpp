// The bounds parser: a bounds file, or a refusal that names its place.
#include <cstddef>
#include <cstdint>
#include <string>

#include "check/bounds.hpp"
#include "fuzz/promise.hpp"

using namespace kvbench;

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const BoundsFile file = parse_bounds(text, "somewhere/b.json");
    for (const Bound& bound : file.bounds) {
      fuzz::promise(!bound.name.empty() && !bound.metric.empty() && !bound.kind().empty(),
                    "a bound without name, metric or kind");
    }
  } catch (const InputError& error) {
    fuzz::check_refusal(error, "b.json");
  }
  return 0;
}
