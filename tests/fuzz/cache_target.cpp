// The reader of cache files: any bytes under a cache file's name. Refused with the file's name, or
// read: each head's rows, which come back equal from the file that the writer makes of them.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "cellfiles/cache_file.hpp"
#include "fuzz/promise.hpp"
#include "fuzz/scratch_folder.hpp"

using namespace kvbench;
using fuzz::promise;

namespace {

void check_rows(const KeptHead& head, const KeptRows& kept) {
  const auto count = std::ssize(kept.rows);
  promise(count == head.rows, "another number of rows than the structure says");
  promise(std::ssize(kept.keys) == count * head.d, "keys of another size");
  promise(std::ssize(kept.values) == count * head.dv, "values of another size");
  for (const double x : kept.keys) promise(std::isfinite(x), "a key that is not finite");
  for (const double x : kept.values) promise(std::isfinite(x), "a value that is not finite");
  for (const KeptRow& row : kept.rows) {
    promise(row.token >= -1, "a negative token");
    promise(row.begin >= kept.prompt && row.begin < row.end, "a row of no life");
    promise(std::isfinite(row.w_num) && std::isfinite(row.w_den), "a weight that is not finite");
    promise(row.copies >= 1, "a row without a copy");
    promise(row.head < head.query_heads, "a query head that the group lacks");
  }
}

// `kept` through the writer and back.
KeptRows written_and_read(const StreamId& id, const KeptHead& head, const KeptRows& kept) {
  static const std::string path = fuzz::kScratchFolder.file("again.h5");
  CacheHeader header;
  header.method = "again";
  CacheWriter writer(path, header);
  StreamShape shape;
  shape.tokens = *head.tokens;
  shape.d = head.d;
  shape.dv = head.dv;
  writer.add(id, shape, kept);
  writer.finish();
  return open_cache(path, {.first_in_child = false})->read(id);
}

void check_head(const KeptCache& cache, const KeptHead& head) {
  const StreamId id{head.sequence, head.layer, head.kv_head};
  promise(cache.find(id) == &head, "a head that is not found");
  const KeptRows kept = cache.read(id);
  check_rows(head, kept);
  if (!head.tokens) return;
  const KeptRows again = written_and_read(id, head, kept);
  promise(again.prompt == kept.prompt && again.rows == kept.rows, "other rows after writing");
  promise(again.keys == kept.keys && again.values == kept.values, "other vectors after writing");
  promise(again.appends == kept.appends && again.reads_future == kept.reads_future &&
              again.bytes == kept.bytes && again.further_numbers == kept.further_numbers,
          "other declarations after writing");
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string path = fuzz::kScratchFolder.file("cache.h5");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    // Not in a child: a crash is to be this process's, which the fuzzer sees.
    const auto cache = open_cache(path, {.first_in_child = false});
    promise(cache->fingerprint.size() == 32, "a fingerprint of another size");
    promise(!cache->heads.empty(), "a file without a head");
    for (const KeptHead& head : cache->heads) check_head(*cache, head);
  } catch (const InputError& error) {
    fuzz::check_refusal(error, path);
  }
  return 0;
}
