// A child process reads a file first, and what becomes of it is said; nothing becomes of this one.
#include "dump/first_reading.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <new>
#include <thread>

#include "core/error.hpp"
#include "dump/crash_report.hpp"
#include "dump/dump.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace {

#ifdef KVBENCH_SANITIZED
constexpr bool kSanitized = true;  // their own handlers, and no limit of memory
#else
constexpr bool kSanitized = false;
#endif

std::vector<std::string> errors_of_reading(const std::function<void(const Step&)>& read) {
  return errors_of([&] { read_in_child("some.h5", read); });
}

double seconds_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void spin() {
  const volatile bool going = true;
  while (going) {
  }
}

// Changes an object of the first global heap of a file, where HDF5 keeps strings of variable
// length: `size_of` gives the size that object `index` is to have (0: the free space at the end).
void change_heap_sizes(const std::string& path,
                       const std::function<std::uint64_t(int index, std::uint64_t size)>& size_of) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t heap = bytes.find("GCOL");
  REQUIRE(heap != std::string::npos);
  std::uint64_t end = 0;
  std::memcpy(&end, bytes.data() + heap + 8, 8);
  end += heap;
  for (std::size_t at = heap + 16; at + 16 <= end;) {
    std::uint16_t index = 0;
    std::uint64_t size = 0;
    std::memcpy(&index, bytes.data() + at, 2);
    std::memcpy(&size, bytes.data() + at + 8, 8);
    const std::uint64_t changed = size_of(index, size);
    std::memcpy(bytes.data() + at + 8, &changed, 8);
    if (index == 0) break;
    at += 16 + (size + 7) / 8 * 8;
  }
  file.clear();
  file.seekp(0);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

constexpr int kRefused = 2;

// Exit status of a process that runs `action`, and what it wrote to stderr.
std::pair<int, std::string> outcome_of(const std::function<void()>& action) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    for (const int signal : {SIGSEGV, SIGABRT}) {
      if (!kSanitized) std::signal(signal, SIG_DFL);  // doctest has its own
    }
    name_dump_on_crash(kRefused);
    action();
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t size; (size = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<std::size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return {status, said};
}

void crash() {
  const volatile std::uintptr_t nowhere = 8;
  *reinterpret_cast<volatile int*>(nowhere) = 1;  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

TEST_CASE("what a child reads without fault is said by nothing") {
  int steps = 0;
  CHECK(errors_of_reading([&](const Step& step) {
          for (int i = 0; i < 10; ++i) {
            step();
            ++steps;
          }
        }).empty());
  CHECK(steps == 0);  // not in this process
  // Left for this process to meet.
  CHECK(errors_of_reading([](const Step&) { throw std::logic_error("a bug"); }).empty());
}

TEST_CASE("the faults that a child finds are thrown here") {
  const std::vector<std::string> errors = {"some.h5: one", "some.h5: " + std::string(300000, 'x')};
  CHECK(errors_of_reading([&](const Step&) { throw InputError(errors); }) == errors);
}

TEST_CASE("a child that dies is a fault of the file") {
  CHECK(says(errors_of_reading([](const Step&) { std::raise(SIGKILL); }),
             {"some.h5", "crashed", "signal 9"}));
  CHECK(says(errors_of_reading([](const Step&) { _exit(7); }), {"some.h5", "exit code 7"}));
  const auto crashed = errors_of_reading([](const Step&) { crash(); });
  CHECK(says(crashed, {"some.h5", kSanitized ? "" : "signal 11", "copy or make it again"}));
}

TEST_CASE("a child that does not come to an end is given up, by the processor time of a step") {
  std::vector<std::string> messages;
  CHECK(seconds_of([&] { messages = errors_of_reading([](const Step&) { spin(); }); }) < 30);
  CHECK(says(messages, {"some.h5", "did not come to an end"}));
  // Steps have their time each.
  CHECK(errors_of_reading([](const Step& step) {
          const std::clock_t start = std::clock();
          while (std::clock() - start < 3 * CLOCKS_PER_SEC / 2) step();
        }).empty());
}

TEST_CASE("a child that asks for memory without end is given up" * doctest::skip(kSanitized)) {
  CHECK(says(errors_of_reading([](const Step&) {
               std::vector<std::vector<char>> all;
               while (true) all.emplace_back(std::size_t{1} << 20, 'x');
             }),
             {"some.h5", "256 MiB"}));
}

TEST_CASE("a dump on which HDF5 crashes or loops is refused by name, beside other threads") {
  const TemporaryFolder folder;
  const std::string path = folder.file("damaged.h5");
  const auto refusal = [&](const std::function<std::uint64_t(int, std::uint64_t)>& size_of) {
    write_small_dump(path);
    change_heap_sizes(path, size_of);
    return errors_of([&] { Dump dump(path); });
  };
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) std::free(std::malloc(64));  // the allocator's locks are in use
  });
  const auto untouched = [](int, std::uint64_t size) { return size; };
  CHECK(refusal(untouched).empty());
  // Free space of no bytes: HDF5 1.10 looks at it again and again.
  CHECK(says(refusal([](int index, std::uint64_t size) { return index == 0 ? 0 : size; }), {path}));
  // A string that goes far beyond its heap. The library may find its end all the same.
  for (const std::uint64_t size : {std::uint64_t{1} << 20, std::uint64_t{1} << 31,
                                   std::uint64_t{1} << 40, ~std::uint64_t{0} - 64}) {
    CAPTURE(size);
    const auto said =
        refusal([&](int index, std::uint64_t was) { return index == 1 ? size : was; });
    CHECK((said.empty() || says(said, {path})));
  }
  stop = true;
  other.join();
}

TEST_CASE("a crash while a dump is read names it and is a refusal, another stays a crash") {
  const std::string path = "/some/dump.h5";
  for (const auto& die : {+[] { crash(); }, +[] { std::raise(SIGSEGV); }, +[] { std::abort(); }}) {
    const auto [status, said] = outcome_of([&] {
      const ReadingMark mark(path);
      die();
    });
    CHECK(said.find(path + ": crashed") != std::string::npos);
    CHECK((kSanitized ? status != 0 : WIFEXITED(status) && WEXITSTATUS(status) == kRefused));
    // Elsewhere nothing is said of it: before and after, and in another thread.
    CHECK(outcome_of(die).second.find(path) == std::string::npos);
    const auto elsewhere = outcome_of([&] {
      const ReadingMark mark(path);
      std::thread(die).join();
    });
    CHECK(elsewhere.second.find(path) == std::string::npos);
    CHECK(elsewhere.first != 0);
    const auto after = outcome_of([&] {
      {
        const ReadingMark mark(path);
      }
      die();
    });
    CHECK(after.second.find(path) == std::string::npos);
  }
}
