// The sweep file, parsed and checked. Its grammar: configs/README.md.
#pragma once

#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "json/json.hpp"
#include "sweep/config.hpp"

namespace kvbench {

// kKeep is for callers that go on to make_plan, which reports the kept errors together with those
// that need the dumps. A file whose list of dumps is wrong throws either way.
enum class ErrorPolicy { kThrow, kKeep };

// Reads and checks a sweep file; "-" is standard input. `sets`: "pointer=value" overrides, applied
// before checking. Throws InputError with all errors, each "file: /json/pointer: what; remedy".
SweepConfig read_sweep(const std::string& path, const std::vector<std::string>& sets = {},
                       const std::vector<AlgorithmDescription>& algorithms = all_algorithms(),
                       ErrorPolicy policy = ErrorPolicy::kThrow);

// The same of a sweep file's text; relative dump paths are relative to the folder of `path`.
// `algorithms` must outlive the result.
SweepConfig parse_sweep(const std::string& text, const std::string& path,
                        const std::vector<std::string>& sets,
                        const std::vector<AlgorithmDescription>& algorithms,
                        ErrorPolicy policy = ErrorPolicy::kThrow);

// A sweep as SweepConfig::resolved has it; its dumps need not be there. `place` begins messages.
SweepConfig resolved_sweep(const nlohmann::json& resolved, const std::string& place,
                           const std::vector<AlgorithmDescription>& algorithms);

}  // namespace kvbench
