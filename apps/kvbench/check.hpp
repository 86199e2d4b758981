// `kvbench check`: results against bounds.
#pragma once

#include <CLI/CLI.hpp>

void add_check(CLI::App& app, int& exit_code);
