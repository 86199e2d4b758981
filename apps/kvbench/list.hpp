// `kvbench list algorithms|metrics|devices`: what there is.
#pragma once

#include <CLI/CLI.hpp>

void add_list(CLI::App& app, int& exit_code);
