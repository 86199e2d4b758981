#include "hdf5/crash_report.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace kvbench {
namespace {

constexpr std::array<int, 5> kErrors = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

std::atomic<const char*> read_path{nullptr};
std::atomic<long> reader{0};
static_assert(std::atomic<const char*>::is_always_lock_free &&
              std::atomic<long>::is_always_lock_free);

std::array<struct sigaction, kErrors.size()> earlier;
int code_of_refusal = 0;

bool has_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

long this_thread() { return syscall(SYS_gettid); }

// write(2) is all that a handler may use; stderr that cannot be written changes nothing.
void write_text(const char* text) {
  const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);
}

void on_error(int signal, siginfo_t* info, void*) {
  const int error = errno;
  const char* path = read_path.load();
  const bool reads = path != nullptr && reader.load() == this_thread();
  if (reads) {
    write_text("\nkvbench: ");
    write_text(path);
    write_text(
        ": crashed inside the HDF5 library while reading it; the file is damaged, copy or make it "
        "again\n");
  }
  for (std::size_t i = 0; i < kErrors.size(); ++i) {
    if (kErrors[i] != signal) continue;
    if (reads && has_default(earlier[i])) _exit(code_of_refusal);
    sigaction(signal, &earlier[i], nullptr);
  }
  // A fault of an instruction comes again as soon as this returns; a signal that was sent does not.
  if (info->si_code <= 0) raise(signal);
  errno = error;
}

}  // namespace

void name_dump_on_crash(int exit_code) {
  code_of_refusal = exit_code;
  // A stack of its own: the fault may be that this thread's is at its end.
  static std::array<std::byte, 1 << 16> stack;
  stack_t own{};
  own.ss_sp = stack.data();
  own.ss_size = stack.size();
  stack_t now{};
  if (sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_DISABLE) != 0) {
    sigaltstack(&own, nullptr);
  }
  struct sigaction action = {};
  action.sa_sigaction = on_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kErrors.size(); ++i) sigaction(kErrors[i], &action, &earlier[i]);
}

ReadingMark::ReadingMark(const std::string& path) : before_(read_path.load()) {
  reader = this_thread();
  read_path = path.c_str();
}

ReadingMark::~ReadingMark() { read_path = before_; }

}  // namespace kvbench
