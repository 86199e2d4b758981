// `kvbench merge`: the journals of shards joined into one results file.
#pragma once

#include <CLI/CLI.hpp>

void add_merge(CLI::App& app, int& exit_code);
