// `kvbench compare`: two results of the same cells.
#pragma once

#include <CLI/CLI.hpp>

void add_compare(CLI::App& app, int& exit_code);
