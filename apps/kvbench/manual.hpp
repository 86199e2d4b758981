// `kvbench manual`: the manual page.
#pragma once

#include <CLI/CLI.hpp>

void add_manual(CLI::App& app, int& exit_code);
