// Exit codes of every command.
#pragma once

namespace kvbench {

inline constexpr int kExitDone = 0;
inline constexpr int kExitBug = 1;
inline constexpr int kExitBadInput = 2;     // command line, sweep, dump or output place
inline constexpr int kExitFailedCells = 3;  // finished, at least one cell failed
inline constexpr int kExitViolation = 4;    // a check or comparison found a violation
inline constexpr int kExitIncomplete = 5;   // interrupted; the same command goes on

}  // namespace kvbench
