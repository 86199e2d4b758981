// window_error DUMP: the mean relative error of `window` with 256 tokens on layer 0, KV head 0 of
// the dump's first sequence, over its last 16 rows.
#include <algorithms/registry.hpp>
#include <cstdio>
#include <dump/dump.hpp>
#include <kernels/kernels.hpp>
#include <replay/replay.hpp>

int main(int, char** argv) {
  const kvbench::Dump dump(argv[1]);
  const auto head = dump.read_stream(dump.info().sequences.front().name, 0, 0);
  const kvbench::Index tokens = head->stream.shape.tokens;
  kvbench::ReplaySetting setting;
  setting.prompt = tokens - 256;
  for (kvbench::Index row = tokens - 16; row < tokens; ++row) setting.rows.push_back(row);
  kvbench::Params params;
  params.set("budget", std::int64_t{256});
  kvbench::replay(head->stream, setting, {{kvbench::find_algorithm("window"), params}},
                  kvbench::cpu_kernels(), [](std::size_t, kvbench::CellResult&& result) {
                    std::printf("%.17g\n", *result.metrics["errors.relative_l2.mean"]);
                  });
}
