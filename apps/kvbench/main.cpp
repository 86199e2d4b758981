// kvbench: replays dumped queries, keys and values of language models through KV-cache compression
// algorithms and writes how far their answers are from exact attention.

#include <fcntl.h>
#include <fmt/core.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "check.hpp"
#include "command_words.hpp"
#include "compare.hpp"
#include "completion.hpp"
#include "compute_device.hpp"
#include "core/error.hpp"
#include "exit_codes.hpp"
#include "export.hpp"
#include "inspect.hpp"
#include "list.hpp"
#include "manual.hpp"
#include "merge.hpp"
#include "plan.hpp"
#include "results/provenance.hpp"
#include "run.hpp"
#include "schema.hpp"
#include "synth.hpp"
#include "talk.hpp"
#include "validate.hpp"

using namespace kvbench;

namespace {

constexpr const char* kFooter =
    R"(Exit codes: 0 done, 1 a bug, 2 bad command line, sweep, dump or output place,
3 finished with failed cells, 4 a check found a violation, 5 interrupted, or shards missing: run
again to go on.
stdout carries data, stderr talk. `kvbench COMMAND --help` explains a command.

Examples:
  kvbench inspect data/smollm2-constitution.h5
  kvbench plan --config configs/quick.json
  kvbench run --config configs/quick.json
  kvbench export --results results/quick/results.json --format csv > quick.csv
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json
  kvbench compare before/results.json results/ci/results.json)";

// The next files opened would get the numbers of standard streams that are closed, and talk would
// be written into them. What stands in for stdout cannot be written, so that its loss is noticed.
void keep_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1) continue;
    ::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int parse_and_run(int argc, char** argv) {
  int exit_code = kExitDone;
  CLI::App app{"Errors of KV-cache compression algorithms on real attention, as JSON", "kvbench"};
  app.set_version_flag("--version", version_line());
  app.require_subcommand(1);
  app.footer(kFooter);
  const std::vector<std::string> words(argv, argv + argc);
  add_run(app, exit_code, words);
  add_plan(app, exit_code);
  add_merge(app, exit_code);
  add_inspect(app, exit_code);
  add_validate(app, exit_code);
  add_synth(app, exit_code);
  add_list(app, exit_code);
  add_export(app, exit_code);
  add_check(app, exit_code);
  add_compare(app, exit_code);
  add_schema(app, exit_code);
  add_completion(app, exit_code);
  add_manual(app, exit_code);
  refuse_mistaken_words(app, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    say("{}\n", parse_fault(app, words, error));
    return kExitBadInput;
  }
  return exit_code;
}

int run_guarded(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const InputError& error) {
    for (const std::string& message : error.messages()) {
      say("kvbench: {}\n", message);
    }
    return kExitBadInput;
  } catch (const IoError& error) {
    say("kvbench: {}\n", error.what());
    if (!work_has_begun) {
      say("kvbench: nothing was computed; make room, or choose another --out\n");
      return kExitBadInput;
    }
    say("kvbench: what was finished is kept; make room, then run the same command again to go "
        "on\n");
    return kExitIncomplete;
  } catch (const DeviceError& error) {
    say("kvbench: {}\n", error.what());
    if (!work_has_begun) {
      say("kvbench: nothing was computed; try --device cpu\n");
      return kExitBadInput;
    }
    say("kvbench: what was finished is kept; run the same command again to go on, or anew with "
        "--device cpu and another --out\n");
    return kExitIncomplete;
  } catch (const std::bad_alloc&) {
    say("kvbench: out of memory; choose fewer tokens (select.tokens), fewer rows "
        "(evaluate.rows) or fewer threads (--threads)\n");
    return kExitBadInput;
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) {  // fmt::print throws where stdout is closed or full
      say("kvbench: cannot write to standard output: {}\n", error.what());
      return kExitBadInput;
    }
    const std::vector<std::string> reasons = reasons_of(error);
    say("kvbench: internal error: {}\n", reasons.front());
    for (std::size_t k = 1; k < reasons.size(); ++k) say("kvbench:   because: {}\n", reasons[k]);
    say("kvbench: this is a bug; please report it with the command line and the output of "
        "`kvbench --version`\n");
    return kExitBug;
  }
}

// A file that may not grow further is a fault of writing like a full disk, not the program's end.
void survive_file_size_limits() { std::signal(SIGXFSZ, SIG_IGN); }

// Matrices go back to the system when they are freed. glibc by itself comes to keep pieces of up to
// 32 MiB, in one heap per thread, and a run then takes more than plan said.
void give_large_memory_back() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_descriptors();
  survive_file_size_limits();
  give_large_memory_back();
  int exit_code = run_guarded(argc, argv);
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit_code == kExitDone) {
    say("kvbench: cannot write to standard output\n");
    exit_code = kExitBadInput;
  }
  return exit_code;
}
