// `kvbench export`: results as flat rows for other programs and for pages.
#pragma once

#include <CLI/CLI.hpp>

void add_export(CLI::App& app, int& exit_code);
