#include "program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#ifdef __GLIBC__
#include <malloc.h>
#include <sys/resource.h>
#endif
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "algorithms/registry.hpp"
#include "cli/arguments.hpp"
#include "cli/options_table.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"
#include "output/log.hpp"
#include "output/run_log.hpp"
#include "results/provenance.hpp"
#include "storage/codec_registry.hpp"
#include "system/error.hpp"
#include "system/shortened.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

constexpr const char* kProgramFooter =
    R"(Exit codes: 0 done, 1 a bug, 2 bad command line, sweep, dump or output place,
3 finished with failed cells, 4 a check found a violation, 5 interrupted, or shards missing: run
again to go on.
Data go to stdout, messages to stderr. `kvbench help COMMAND` explains a command, `kvbench help h2o` a method or codec.

Examples:
  kvbench inspect data/smollm2-constitution.h5
  kvbench plan --config configs/quick.json
  kvbench run --config configs/quick.json
  kvbench export --results results/quick/results.json --format csv > quick.csv
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json
  kvbench compare before/results.json results/ci/results.json)";

// The next files opened would get the numbers of closed standard streams, and messages would be
// written into them. The substitute for stdout cannot be written to, so that its loss is noticed.
void keep_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1) continue;
    ::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Refuses to explain `word`, which names neither of the `commands`, nor a method or a codec.
void require_known(const std::string& word, std::vector<std::string> commands) {
  if (word.starts_with('-') || std::ranges::count(commands, word) != 0) return;
  std::vector<std::string> known = std::move(commands);
  for (const AlgorithmDescription& each : all_algorithms()) known.push_back(each.id);
  for (const CodecDescription& each : all_codecs()) known.push_back(each.id);
  std::vector<std::string> longer;
  std::ranges::copy_if(known, std::back_inserter(longer), [&](const std::string& each) {
    return word.size() > 1 && each.starts_with(word);
  });
  const std::string near = longer.empty()
                               ? did_you_mean(word, known)
                               : fmt::format("; did you mean {}?", fmt::join(longer, ", "));
  throw InputError(fmt::format(
      "kvbench help: {}: no command, method or codec has this name{}", word,
      near.empty() ? "; see kvbench --help, kvbench list algorithms, kvbench list storage" : near));
}

// `kvbench help run` as `kvbench run --help`, `kvbench help h2o` as `kvbench list algorithms h2o`,
// `kvbench help kivi` as `kvbench list storage kivi`.
void read_help(std::vector<std::string>& words, const CLI::App& app) {
  const std::string word = words.size() > 2 ? words[2] : "";
  const bool is_algorithm = find_algorithm(word) != nullptr;
  if (is_algorithm || find_codec(word) != nullptr) {
    words[1] = is_algorithm ? "algorithms" : "storage";
    words.insert(words.begin() + 1, "list");
    return;
  }
  std::vector<std::string> commands;
  for (const CLI::App* each : commands_of(app)) commands.push_back(each->get_name());
  if (!word.empty()) require_known(word, std::move(commands));
  words.erase(words.begin() + 1);
  words.emplace_back("--help");
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Errors of KV-cache compression algorithms on real attention, as JSON", "kvbench"};
  app.set_version_flag("--version", version_line());
  app.require_subcommand(1);
  app.footer(kProgramFooter);
  std::vector<std::string> words(argv, argv + argc);
  std::vector<Command> commands = {add_run(app, words), add_plan(app), add_merge(app)};
#define KVBENCH_ADD(name) commands.push_back(add_##name(app));
  KVBENCH_COMMANDS(KVBENCH_ADD)
#undef KVBENCH_ADD
  if (words.size() > 1 && words[1] == "help") read_help(words, app);
  check_arguments(app, words);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend() - 1);  // as CLI11 takes them
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    log_text("{}\n", parse_error_text(app, words, error));
    return kExitBadInput;
  }
  const auto parsed = std::find_if(commands.begin(), commands.end(),
                                   [](const Command& command) { return command.app->parsed(); });
  return parsed->run();
}

// "kvbench run: --device: ..": options are named with their command, files by their own name.
std::string with_program(const std::string& message, const std::string& command) {
  if (message.starts_with("kvbench ")) return message;
  return message.starts_with("--") ? "kvbench " + command + ": " + message : "kvbench: " + message;
}

void log_errors(const std::vector<std::string>& messages, const std::string& command) {
  constexpr std::size_t kShown = 50;
  for (std::size_t i = 0; i < std::min(messages.size(), kShown); ++i) {
    log_text("{}\n", with_program(shortened(messages[i]), command));
  }
  if (messages.size() > kShown) {
    log_text("kvbench: and at least {} more; fix those above first\n", messages.size() - kShown);
  }
}

// The stack of this thread: the system ends a program that needs more, without a word.
void require_stack() {
  constexpr rlim_t kMinStack = 128;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur / 1024 >= kMinStack) return;
  throw InputError(fmt::format(
      "the stack is limited to {} KiB, and at least {} KiB are needed; raise the limit: "
      "ulimit -s 8192",
      limit.rlim_cur / 1024, kMinStack));
}

int run_guarded(int argc, char** argv) {
  try {
    require_stack();
    return parse_and_run(argc, argv);
  } catch (const InputError& error) {
    log_errors(error.messages(), argc > 1 ? argv[1] : "");
    return kExitBadInput;
  } catch (const IoError& error) {
    log_text("kvbench: {}\nkvbench: nothing was computed\n", error.what());
    return kExitBadInput;
  } catch (const DeviceError& error) {
    log_text("kvbench: {}\n", error.what());
    log_text("kvbench: nothing was computed; try --device cpu\n");
    return kExitBadInput;
  } catch (const std::bad_alloc&) {
    log_text(
        "kvbench: out of memory; of a sweep choose fewer tokens (select.tokens), fewer rows "
        "(evaluate.rows) or fewer --threads, of `synth` fewer --tokens, of other input less of it, "
        "or use a machine with more\n");
    return kExitBadInput;
  } catch (const std::exception& error) {
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
      log_no_thread(*system);
      return kExitBadInput;
    }
    if (std::ferror(stdout) != 0) {  // fmt::print throws if stdout is closed or full
      log_text("kvbench: cannot write to standard output: {}\n", error.what());
      return kExitBadInput;
    }
    const std::vector<std::string> reasons = reasons_of(error);
    log_text("kvbench: internal error: {}\n", reasons.front());
    for (std::size_t k = 1; k < reasons.size(); ++k)
      log_text("kvbench:   because: {}\n", reasons[k]);
    log_text(
        "kvbench: this is a bug; please report it with the command line and the output of "
        "`kvbench --version`\n");
    return kExitBug;
  }
}

// A file that may not grow further is an error of writing like a full disk, not the program's end.
void survive_file_size_limits() { std::signal(SIGXFSZ, SIG_IGN); }

// Matrices go back to the system when they are freed. glibc by itself comes to keep pieces of up to
// 32 MiB, in one heap per thread, and a run then needs more than the plan estimated.
void give_large_memory_back() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

}  // namespace

int run_program(int argc, char** argv) {
  keep_standard_descriptors();
  survive_file_size_limits();
  give_large_memory_back();
  int exit_code = run_guarded(argc, argv);
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit_code == kExitDone) {
    log_text("kvbench: cannot write to standard output\n");
    exit_code = kExitBadInput;
  }
  return exit_code;
}

}  // namespace kvbench
