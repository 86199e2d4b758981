// `kvbench plan`: what a run would do.
#pragma once

#include <CLI/CLI.hpp>

void add_plan(CLI::App& app, int& exit_code);
