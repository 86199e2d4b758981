// `kvbench run`: computes every cell of a sweep and writes results.json; resumes what was begun.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// `argv`: the whole command line, for the provenance of the results.
void add_run(CLI::App& app, int& exit_code, std::vector<std::string> argv);
