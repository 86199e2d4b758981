// kvbench: replays dumped queries, keys and values of language models through KV-cache compression
// algorithms and writes how far their answers are from exact attention.
#include "program.hpp"

int main(int argc, char** argv) { return kvbench::run_program(argc, argv); }
