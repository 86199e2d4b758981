// The program, whose main() is main.cpp's.
#pragma once

namespace kvbench {

// Returns the exit code.
int run_program(int argc, char** argv);

}  // namespace kvbench
