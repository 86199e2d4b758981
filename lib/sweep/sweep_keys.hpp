// The keys of a sweep file and the ranges of their numbers: what reading refuses and what the JSON
// Schema says come from these tables.
#pragma once

#include <string>
#include <vector>

#include "parameters/parameters.hpp"

namespace kvbench {

struct SweepKey {
  std::string name;
  std::string doc;      // one line
  std::string missing;  // remedy if it is missing; empty: it may be
};

// The keys of one object of a sweep file.
struct SweepKeys {
  std::string owner;  // "a sweep file", for messages
  std::vector<SweepKey> keys;

  std::vector<std::string> names() const;
  const SweepKey& at(const std::string& name) const;
};

const SweepKeys& sweep_file_keys();
const SweepKeys& select_keys();
const SweepKeys& replay_keys();
const SweepKeys& evaluate_keys();
const SweepKeys& rows_keys();         // keys of the object forms, of which exactly one is given
const SweepKeys& prompt_rows_keys();  // likewise, of rows of the prompt
const SweepKeys& seeds_keys();
const SweepKeys& memory_keys();
const SweepKeys& output_keys();
const SweepKeys& entry_keys();  // keys of an element of `algorithms`
const SweepKeys& then_keys();   // keys of its `then`
const SweepKeys& where_keys();
const SweepKeys& storage_keys();        // keys of the object form of an element of `storage`
const SweepKeys& layer_storage_keys();  // keys of an element of its `by_layer`

// Inclusive.
struct IntegerRange {
  double minimum = 0.0;
  double maximum = 1e15;
};
inline constexpr IntegerRange kTokenRange{1};
inline constexpr IntegerRange kIndexRange{0, 1e6};  // indices of layers and KV heads
inline constexpr IntegerRange kRowRange{0};
inline constexpr IntegerRange kRowCountRange{1};  // last, every
inline constexpr IntegerRange kSeedRange{0, 4294967295.0};
inline constexpr IntegerRange kSeedCountRange{1, 1e6};

const Parameter& prompt_parameter();           // replay.prompt_tokens
const std::vector<int>& element_byte_sizes();  // memory.element_bytes
inline constexpr int kLongestName = 200;       // bytes of a sweep's name

}  // namespace kvbench
