// Rows that a method kept of each KV head, given from outside: a cache file (data/FORMAT.md), or
// made in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.hpp"

namespace kvbench {

// One row, kept while decode row i is answered with begin <= i < end.
struct KeptRow {
  static constexpr Index kToTheEnd = std::numeric_limits<Index>::max();

  std::int32_t token = -1;  // -1: of no token
  double w_num = 1.0;
  double w_den = 1.0;
  Index begin = 0;  // at least P
  Index end = kToTheEnd;
  std::int16_t head = -1;   // the query head of the group that reads it; -1: all
  std::int32_t copies = 1;  // equal rows that are stored; the weights are those of all of them
  // Parts of it that are stored.
  bool keeps_key = true;
  bool keeps_value = true;
  bool counts_as_token = true;
  std::uint8_t weight_numbers = 0;

  bool operator==(const KeptRow&) const = default;
};

// Kept rows of one KV head.
struct KeptRows {
  Index prompt = 0;  // P that it was made for
  std::vector<KeptRow> rows;
  std::vector<double> keys;            // [rows, d] in place of the tokens', or empty
  std::vector<double> values;          // [rows, dv] in place of the tokens', or empty
  bool appends = true;                 // every decode token is kept exactly from its own row on
  bool reads_future = false;           // a row counts from its token's row on, if that is later
  std::optional<Index> bytes;          // that the method says it stores, appended tokens aside
  std::vector<Index> further_numbers;  // [n - P] stored besides at each decode row, or empty
};

// Facts of a KV head known without reading its rows.
struct KeptHead {
  std::string sequence;
  int layer = 0;
  int kv_head = 0;
  Index prompt = 0;             // P
  std::optional<Index> tokens;  // n that it was made for
  std::string cell{};           // id of the cell that kept the rows; empty: not said
  Index rows = 0;
  Index d = 0;             // width of keys of its own, 0: none
  Index dv = 0;            // width of values of its own, 0: none
  Index least_tokens = 0;  // n is at least this
  int query_heads = 1;     // G is at least this
};

// `read` is of the file that `path` names, or of its replacement; null where only the heads
// are known.
struct KeptCache {
  std::string path;
  std::string fingerprint;  // fingerprint of its content
  std::string method;
  std::string dump;             // fingerprint of the dump whose rows they are; empty: not said
  std::string setting;          // method, parameters, seed and dump: what tells settings apart
  std::vector<KeptHead> heads;  // ascending by sequence, layer, KV head
  std::function<KeptRows(const StreamId&)> read;

  // The head of that KV head; null if the cache has none.
  const KeptHead* find(const StreamId& id) const;
};

// Why the rows do not fit the stream, with a remedy; nullopt if they fit.
std::optional<std::string> misfit(const KeptHead& head, const StreamShape& shape, Index prompt);

}  // namespace kvbench
