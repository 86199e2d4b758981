// A dump that is described by its numbers in place of a file: what a sweep on it would take is
// planned before it is exported.
#pragma once

#include <memory>
#include <string>

#include "dump/dump.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Every layer has the same shape, queries of all tokens, and rotated keys where d is even.
struct DumpShape {
  std::string text;  // as given
  int layers = 0;
  int kv_heads = 0;
  int heads_per_kv = 0;
  Index d = 0;  // width of keys and values
  Index tokens = 0;
};

// "32x8x4x128x32768". Throws InputError, which names --shape.
DumpShape read_dump_shape(const std::string& text);

// A dump of one sequence, "0".
PlannedDump planned_dump(const DumpShape& shape);

// On disk, with 2 bytes a number and without `out`.
double dump_bytes(const DumpShape& shape);

// Random numbers of variance 1 / 3 in place of the first `tokens` tokens of a KV head: for timing.
std::unique_ptr<StreamData> drawn_stream(const WorkGroup& group, int kv_head, Index tokens);

}  // namespace kvbench
