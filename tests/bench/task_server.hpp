// Runs tasks one at a time on request, so that a driver can take turns between kvbench and peers.
#pragma once

#include <string>

namespace kvbench::bench {

// Prints one line about the stream, the machine's limits and the tasks, then reads lines
// "TASK REPEATS" from standard input, runs the task so often, and answers each with one line of
// words: "ok SECONDS_PER_RUN FLOOR_SECONDS NAME=VALUE ..", or "error REASON". Returns the exit
// status.
int serve_tasks(const std::string& dump_path);

}  // namespace kvbench::bench
