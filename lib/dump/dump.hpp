// Reading dumps: HDF5 files of per-layer Q/K/V tensors (format: data/FORMAT.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/stream.hpp"
#include "dump/dump_info.hpp"
#include "numerics/aligned.hpp"

namespace kvbench {

// A stream with the memory that its views point to.
struct StreamData {
  Stream stream;
  UnfilledDoubles keys;
  UnfilledDoubles values;
  std::vector<UnfilledDoubles> queries;
  std::vector<UnfilledDoubles> wo_v_l1;
  std::vector<UnfilledDoubles> repeat_queries;
  UnfilledDoubles repeat_keys;
};

struct DumpOptions {
  // Bytes that decoding a layer's chunks may take; 0: what the process may use.
  std::uint64_t memory_limit = 0;
  // Whether structure and fingerprint are first read in a child process (hdf5/first_reading.hpp).
  // Without it a damaged file can end this process inside HDF5: for files known to be whole, where
  // a process must not fork.
  bool first_in_child = true;
};

// An open dump. Only what lies in the file itself is read: external links, external storage and
// virtual datasets are refused, and what is not a regular file.
// Every error of the file throws InputError naming file, dataset or attribute and the remedy;
// structural errors are all found by the constructor. Several threads may read, one waits for the
// other.
class Dump {
 public:
  explicit Dump(const std::string& path, const DumpOptions& options = {});
  // A dump in memory, made by this process; `name` is its path in messages. `image` is used in
  // place and must live as long. `hashes`: for an outline, whose tensors have shapes and no
  // elements; the fingerprint is that of the dump whose tensors have these hashes.
  Dump(const std::string& name, std::span<const std::byte> image, TensorHashes hashes = {});
  ~Dump();
  Dump(Dump&&) noexcept;
  Dump& operator=(Dump&&) noexcept;

  const DumpInfo& info() const;

  // Reads one KV head: keys, values and the queries of its group, first `tokens` positions (0 =
  // all). NaN and infinity throw InputError naming dataset, head and token. Holds nothing else. A
  // layer that others read comes with the queries of all, one that reads another with its own
  // alone.
  std::unique_ptr<StreamData> read_stream(const std::string& sequence, int layer, int kv_head,
                                          Index tokens = 0) const;

  // Takes a stream that nothing refers to any more: the next read_stream() reads into its memory.
  // The system fills each page that it gives with zeros, which takes longer than reading into it.
  void reuse(std::unique_ptr<StreamData> data) const;

  // The model's own output rows of one query head, [No, dv] for the last No positions.
  UnfilledDoubles read_out(const std::string& sequence, int layer, int query_head) const;

  // The output projection of one query head of a layer that has it, [dv, hidden].
  UnfilledDoubles read_wo(const std::string& sequence, int layer, int query_head) const;

  // The residual norms of a layer's last residual_rows positions; empty without them.
  std::vector<double> read_residual_norms(const std::string& sequence, int layer) const;

  // XXH3-128 of the content (attributes, shapes, tensors: all bytes below 1 GiB,
  // evenly spaced samples above), never of path or time. Non-finite elements met on the way throw
  // InputError.
  std::string fingerprint() const;

  // The hashes of all tensors that the fingerprint is made of, if it is "by tensor": of a dump in
  // memory, empty for others.
  TensorHashes tensor_hashes() const;

  // Notes on keys and values that a capture has more often than a model: equal KV heads, tokens of
  // zeros at the end, a layer with another one's (dump/layer_survey.hpp). Known from the
  // fingerprint, if that was asked for before; else from samples, and all of what they make
  // suspicious.
  std::vector<std::string> notes() const;

  // Where the fingerprint is of samples: size and time of the last change of the file, by which a
  // run that resumes sees that the dump is another one; else empty.
  std::string state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// To be called in a child that was forked while other threads might have read a dump: they are not
// there to end what they began. Dumps that were open must not be read in the child.
void renew_dumps_after_fork();

}  // namespace kvbench
