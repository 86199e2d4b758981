#pragma once

// Sanitizers have their own handlers of signals, keep what was freed, reserve address space, and
// take minutes to read JSON of many MiB, which is tested without them.
#ifdef KVBENCH_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
