// One describing function per algorithm file; registry.cpp lists them.
#pragma once

#include "algorithms/algorithm.hpp"

namespace kvbench {

AlgorithmDescription describe_exact();
AlgorithmDescription describe_window();
AlgorithmDescription describe_dilated_window();
AlgorithmDescription describe_streaming_llm();
AlgorithmDescription describe_key_attention();
AlgorithmDescription describe_h2o();
AlgorithmDescription describe_uniform();
AlgorithmDescription describe_kcenter();
AlgorithmDescription describe_subgen();
AlgorithmDescription describe_oracle_topk();

}  // namespace kvbench
