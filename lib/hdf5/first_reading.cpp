#include "hdf5/first_reading.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <string_view>
#include <vector>

#include "hdf5/hdf5.hpp"
#include "system/error.hpp"
#include "system/file.hpp"

namespace kvbench {
namespace {

constexpr rlim_t kMemory = rlim_t{256} << 20;
constexpr rlim_t kSpareFiles = 16;
constexpr time_t kStepSeconds = 1;                                  // seconds of processor time
constexpr std::uint64_t kMemoryOfSecond = std::uint64_t{16} << 20;  // bytes of further memory
constexpr int kSilentSeconds = 60;                                  // without a sign of life
constexpr time_t kSignOfLife = 1;                                   // seconds between two of them
constexpr int kNoMemory = 2;                                        // the child's exit code

// Messages of the child, each ended by a zero byte: nothing (it lives), kDone, a message or an
// answer.
constexpr std::string_view kDone = "done";
constexpr std::string_view kMessage = "message ";
constexpr std::string_view kAnswer = "answer ";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||
                            __has_feature(memory_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

rlim_t address_space() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

// Lowers a limit of this process to `most`.
void limit(__rlimit_resource resource, rlim_t most) {
  rlimit now{};
  if (getrlimit(resource, &now) != 0) return;
  now.rlim_cur = std::min(now.rlim_cur, most);
  setrlimit(resource, &now);
}

// Signals that end a process that reads what is damaged, or that reads for too long.
constexpr int kDeadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGPROF};

// Signals to this process are for its parent; those of its own errors end it as they do by default,
// under sanitizers with their report.
void own_signals() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int signal : kDeadly) {
    sigdelset(&blocked, signal);
    if (!kSanitized || signal == SIGPROF) std::signal(signal, SIG_DFL);
  }
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

// `memory`: bytes of its address space; `files`: the highest descriptor that it may open.
void limit_process(rlim_t memory, rlim_t files) {
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, files);
  if (kSanitized) return;
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_AS, memory);
}

time_t now_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// The child's end of the pipe.
class Report {
 public:
  Report(int pipe, time_t step_seconds)
      : pipe_(pipe), step_seconds_(step_seconds), said_(now_seconds()) {}

  // Gives the next step its time; says now and then that this process lives.
  void step() {
    const itimerval time{.it_interval = {}, .it_value = {.tv_sec = step_seconds_, .tv_usec = 0}};
    setitimer(ITIMER_PROF, &time, nullptr);
    if (now_seconds() - said_ < kSignOfLife) return;
    said_ = now_seconds();
    say("");
  }

  void say(std::string_view text) const {
    const std::string record = std::string(text) + '\0';
    if (!write_fully(pipe_, record)) _exit(1);  // the parent is gone
  }

 private:
  int pipe_;
  time_t step_seconds_;
  time_t said_;
};

[[noreturn]] void run_child(int pipe, rlim_t memory, rlim_t files, time_t step_seconds,
                            const std::function<std::vector<std::string>(const Step&)>& read) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  own_signals();
  limit_process(memory, files);
  hdf5::renew_lock_after_fork();
  Report report(pipe, step_seconds);
  try {
    report.step();
    for (const std::string& answer : read([&] { report.step(); })) {
      report.say(std::string(kAnswer) + answer);
    }
  } catch (const InputError& error) {
    for (const std::string& message : error.messages()) {
      report.say(std::string(kMessage) + message);
    }
  } catch (const std::bad_alloc&) {
    _exit(kNoMemory);
  } catch (...) {  // the caller meets it again
  }
  report.say(kDone);
  _exit(0);
}

// Output of a child until it ended or fell silent.
struct Heard {
  std::vector<std::string> messages;
  std::vector<std::string> answers;
  bool done = false;
  bool silent = false;
};

// Takes the records that `text` has whole.
void take_records(std::string& text, Heard& heard) {
  std::size_t start = 0;
  for (std::size_t end; (end = text.find('\0', start)) != std::string::npos; start = end + 1) {
    const std::string_view record = std::string_view(text).substr(start, end - start);
    if (record == kDone) heard.done = true;
    if (record.starts_with(kMessage)) heard.messages.emplace_back(record.substr(kMessage.size()));
    if (record.starts_with(kAnswer)) heard.answers.emplace_back(record.substr(kAnswer.size()));
  }
  text.erase(0, start);
}

Heard listen(int pipe) {
  Heard heard;
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (true) {
    pollfd ready{.fd = pipe, .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, kSilentSeconds * 1000);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      heard.silent = true;
      return heard;
    }
    const ssize_t size = ::read(pipe, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return heard;
    text.append(buffer.data(), size);
    take_records(text, heard);
  }
}

// How the child ended; -1 where the program has waited for it elsewhere.
int status_of(pid_t child) {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  return ended == child ? status : -1;
}

// Why there was no end to what the child had to say.
std::string failure(const Heard& heard, int status, time_t step_seconds, rlim_t memory) {
  if (heard.silent) return fmt::format("did not answer for {} s", kSilentSeconds);
  if (status == -1) return "ended early";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) {
    return fmt::format("did not come to an end within {} s of processor time", step_seconds);
  }
  if (WIFSIGNALED(status)) {
    return fmt::format("crashed (signal {}, {})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == kNoMemory) {
    return fmt::format("takes more than {} MiB of memory", memory >> 20);
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

std::vector<std::string> read_in_child(
    const std::string& path, const std::function<std::vector<std::string>(const Step&)>& read,
    const FirstReading& reading) {
  const hdf5::Session session;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw IoError(system_error(path, "be read: no pipe"));
  const UniqueFd from_child(ends[0]);
  UniqueFd to_parent(ends[1]);
  const rlim_t memory = kMemory + reading.further_memory;
  const auto step_seconds =
      static_cast<time_t>(kStepSeconds + reading.further_memory / kMemoryOfSecond);
  const rlim_t space = address_space() + memory;
  // The pipe's end was opened last and so is about the highest there is.
  const rlim_t files = static_cast<rlim_t>(to_parent.get()) + 1 + kSpareFiles;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of this program runs in the child
  const pid_t child = fork();
  if (child == 0) run_child(to_parent.get(), space, files, step_seconds, read);
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) {
    throw IoError(fmt::format("{}: cannot start a process that reads it first ({})", path,
                              std::strerror(fork_error)));
  }
  to_parent.reset();
  const Heard heard = listen(from_child.get());
  if (heard.silent) kill(child, SIGKILL);
  const int status = status_of(child);
  if (!heard.messages.empty()) throw InputError(heard.messages);
  if (heard.done) return heard.answers;
  throw FirstReadingError(
      fmt::format("{}: reading its {} {}; HDF5 does so on damaged files, {}", path, reading.what,
                  failure(heard, status, step_seconds, memory), reading.remedy));
}

}  // namespace kvbench
