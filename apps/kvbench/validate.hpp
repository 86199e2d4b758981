// `kvbench validate DUMP` recomputes a dump's stored attention outputs; `--config F` checks a sweep
// file and the dumps it names.
#pragma once

#include <CLI/CLI.hpp>

void add_validate(CLI::App& app, int& exit_code);
