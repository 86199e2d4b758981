// `kvbench schema`: JSON Schemas of the files that kvbench reads and writes.
#pragma once

#include <CLI/CLI.hpp>

void add_schema(CLI::App& app, int& exit_code);
