// Where results come from: program, build, machine, command line.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

std::string program_version();  // "0.1.0"
std::string version_line();     // version, commit, compiler, instruction set
std::string instruction_set();  // "avx512", "avx2" or "baseline": what the program was built for
std::string cpu_model();        // as the system calls it, "unknown" if it does not

// One element of results.json's `provenance`, with paths of `argv` as portable_path() has them.
// `started`: now, UTC.
Json provenance(const std::vector<std::string>& argv);

}  // namespace kvbench
