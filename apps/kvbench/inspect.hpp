// `kvbench inspect DUMP`: what is in a dump and what its tensors are like.
#pragma once

#include <CLI/CLI.hpp>

void add_inspect(CLI::App& app, int& exit_code);
