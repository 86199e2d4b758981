// Demands of a fuzz target beyond not crashing.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "system/error.hpp"

namespace kvbench::fuzz {

// Ends the process with `what`, as a crash that a fuzzer keeps the input of.
inline void promise(bool kept, const std::string& what) {
  if (kept) return;
  std::fprintf(stderr, "broken: %s\n", what.c_str());
  std::abort();
}

// A refusal says something in each of its messages, and where.
inline void check_refusal(const InputError& error, const std::string& place) {
  promise(!error.messages().empty(), "a refusal without a message");
  for (const std::string& message : error.messages()) {
    promise(message.find(place) != std::string::npos, "a message without its place: " + message);
  }
}

}  // namespace kvbench::fuzz
