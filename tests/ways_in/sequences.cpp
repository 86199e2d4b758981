#include <memory>
#include <string>

#include "commands.hpp"
#include "dump/dump.hpp"
#include "exit_codes.hpp"
#include "output/log.hpp"

namespace kvbench {

Command add_sequences(CLI::App& app) {
  const auto path = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("sequences", "Print the sequences of a dump and their numbers of layers");
  command->add_option("DUMP", *path, "Dump (HDF5)")->required();
  command->footer("Examples:\n  kvbench sequences data/smollm2-constitution.h5");
  return {command, [path] {
            const Dump dump(*path);
            for (const SequenceInfo& sequence : dump.info().sequences) {
              print_text("{} {}\n", sequence.name, sequence.layers.size());
            }
            return kExitDone;
          }};
}

}  // namespace kvbench
