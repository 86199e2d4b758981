// Data of a pass in which the model repeats the prompt: /sequences/<s>/repeat, and q_repeat and
// k_repeat of its layers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/repeat.hpp"
#include "dump/dump_info.hpp"
#include "dump/tensor_shape.hpp"
#include "system/error.hpp"

namespace kvbench {

// The parts, of a sequence of `tokens` tokens at `location`; null without the dataset, or with
// errors.
std::shared_ptr<const RepeatPass> check_repeat(ErrorList& errors, hid_t sequence,
                                               const std::string& location, Index tokens);

struct RepeatTensors {
  TensorShape q;
  TensorShape k;
};

// A layer's q_repeat [Hq, Nr, d] and k_repeat [Hkv, Nr, d], if it has them, besides its q and k.
std::optional<RepeatTensors> check_repeat_tensors(ErrorList& errors, hid_t layer,
                                                  const std::string& location,
                                                  const std::optional<TensorShape>& q,
                                                  const std::optional<TensorShape>& k);

// Gives the layers that hold such tensors the sequence's parts; errors where their rows disagree.
void join_repeat(ErrorList& errors, const std::string& location, SequenceInfo& sequence);

}  // namespace kvbench
