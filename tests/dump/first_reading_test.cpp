// A child process reads a file first, and what becomes of it is said; nothing becomes of this one.
#include "hdf5/first_reading.hpp"

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
#include <memory>
#include <new>
#include <thread>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "hdf5/hdf5.hpp"
#include "system/error.hpp"

using namespace kvbench;

namespace first_reading_test {

std::vector<std::string> errors_of_reading(const std::function<void(const Step&)>& read) {
  return errors_of([&] {
    read_in_child("some.h5", [&](const Step& step) {
      read(step);
      return std::vector<std::string>();
    });
  });
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

// Leads the free space of names in a group's heap to itself: HDF5 1.10 makes room for it again and
// again.
void lead_free_space_to_itself(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t heap = bytes.find("HEAP");
  REQUIRE(heap != std::string::npos);
  std::uint64_t free_space = 0, names = 0;
  std::memcpy(&free_space, bytes.data() + heap + 16, 8);
  std::memcpy(&names, bytes.data() + heap + 24, 8);
  REQUIRE(names + free_space + 8 <= bytes.size());
  file.clear();
  file.seekp(static_cast<std::streamoff>(names + free_space));
  file.write(bytes.data() + heap + 16, 8);
}

void crash() {
  const volatile std::uintptr_t nowhere = 8;
  *reinterpret_cast<volatile int*>(nowhere) = 1;  // NOLINT(performance-no-int-to-ptr)
}

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

TEST_CASE("what a child found out is returned here, and nothing that it could not") {
  std::vector<std::string> answer = {"", "some text", std::string(300000, 'x')};
  CHECK(read_in_child("some.h5", [&](const Step&) { return answer; }) == answer);
  CHECK(read_in_child("some.h5", [](const Step&) -> std::vector<std::string> {
          throw std::logic_error("a bug");
        }).empty());
}

TEST_CASE("memory that is expected of a reading is allowed" * doctest::skip(kSanitized)) {
  const auto take = [](const Step&) {
    const std::vector<char> all(std::size_t{400} << 20, 'x');
    return std::vector<std::string>{std::string(1, all.back())};
  };
  CHECK(says(errors_of([&] { read_in_child("some.h5", take, {.what = "numbers"}); }),
             {"some.h5: reading its numbers", "256 MiB"}));
  CHECK(read_in_child("some.h5", take, {.further_memory = std::uint64_t{256} << 20}).front() ==
        "x");
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
               // Not written to: some machines take more than a second to hand out 256 MiB.
               std::vector<std::unique_ptr<char[]>> all;
               while (true) all.push_back(std::make_unique_for_overwrite<char[]>(1 << 20));
             }),
             {"some.h5", "256 MiB"}));
}

TEST_CASE("a dump on which HDF5 loops is refused by name, beside other threads" *
          doctest::skip(kSanitized)) {
  const TemporaryFolder folder;
  const std::string path = folder.file("damaged.h5");
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) std::free(std::malloc(64));  // the allocator's locks are in use
  });
  write_small_dump(path);
  CHECK(errors_of([&] { Dump dump(path); }).empty());
  lead_free_space_to_itself(path);
  const auto said = errors_of([&] { Dump dump(path); });
#if H5_VERSION_GE(1, 14, 0)
  CHECK((said.empty() || says(said, {path})));  // it does not loop from 1.14 on
#else
  // The loop takes memory too; the machine's speed decides which limit it meets first.
  CHECK((says(said, {path, "memory"}) || says(said, {path, "did not come to an end"})));
#endif
  stop = true;
  other.join();
}

}  // namespace first_reading_test
