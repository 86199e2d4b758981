// `kvbench synth KIND --out F`: seeded synthetic dumps.
#pragma once

#include <CLI/CLI.hpp>

void add_synth(CLI::App& app, int& exit_code);
