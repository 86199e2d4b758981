#pragma once

// Sanitizers have their own handlers of signals, keep what was freed, reserve address space, and
// read JSON a hundred times slower: limits of many MiB are tested without them.
#ifdef KVBENCH_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
