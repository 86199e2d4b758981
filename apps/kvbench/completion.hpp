// `kvbench completion`: what a shell completes after `kvbench`.
#pragma once

#include <CLI/CLI.hpp>

void add_completion(CLI::App& app, int& exit_code);
