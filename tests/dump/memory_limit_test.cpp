// A dump larger than the memory that a process may have is read head by head.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <new>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "system/error.hpp"

using namespace kvbench;

namespace memory_limit_test {

constexpr bool kLimitWorks = !kSanitized;

constexpr std::size_t kExtra = std::size_t{48} << 20;

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Runs `action` in a process that may take kExtra bytes more than this one has: 0 if it returns
// true, 1 false, 2 where it throws.
int with_little_memory(const std::function<bool()>& action) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int code = 2;
    try {
      const rlim_t most = address_space() + kExtra;
      const rlimit limit{most, most};
      if (setrlimit(RLIMIT_AS, &limit) == 0) code = action() ? 0 : 1;
    } catch (const InputError& error) {
      for (const std::string& message : error.messages())
        std::fprintf(stderr, "%s\n", message.c_str());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

// 64 heads of 8192 x 128 float32 twice, half a gigabyte; the file system stores what is written.
LayerLayout large_layout() {
  LayerLayout layout;
  layout.query_heads = layout.kv_heads = 64;
  layout.tokens = 8192;
  layout.query_rows = 16;
  layout.d = layout.dv = 128;
  return layout;
}

void write_large_dump(const std::string& path) {
  const LayerLayout layout = large_layout();
  StorageOptions storage;
  storage.type = ElementType::kFloat32;
  DumpWriter writer(path, {"large", "test", 1}, storage);
  writer.add_sequence("text");
  writer.add_layer(0, layout);
  for (const Index head : {0, 31, 63}) {
    writer.write_head("q", head, std::vector<double>(16 * 128, 0.25));
    writer.write_head("k", head, std::vector<double>(8192 * 128, static_cast<double>(head)));
    writer.write_head("v", head, std::vector<double>(8192 * 128, -static_cast<double>(head)));
  }
  writer.finish();
}

TEST_CASE("a dump larger than memory is read head by head" * doctest::skip(!kLimitWorks)) {
  const TemporaryFolder folder;
  const std::string path = folder.file("large.h5");
  write_large_dump(path);
  REQUIRE(std::filesystem::file_size(path) > 10 * kExtra);
  // The limit bites: half of one tensor of the layer, as stored, is too much.
  CHECK(with_little_memory([] {
          try {
            ::operator delete(::operator new(std::size_t{128} << 20));
            return false;
          } catch (const std::bad_alloc&) {
            return true;
          }
        }) == 0);
  CHECK(with_little_memory([&] {
          const Dump dump(path);
          bool right = true;
          for (int head = 0; head < 64; ++head) {
            const auto data = dump.read_stream("text", 0, head);
            const double expected = head == 31 || head == 63 ? head : 0.0;
            right = right && data->keys.front() == expected && data->keys.back() == expected &&
                    data->values.back() == -expected;
          }
          return right && dump.fingerprint().size() == 32;
        }) == 0);
}

TEST_CASE("one head that does not fit is refused, not attempted" * doctest::skip(!kLimitWorks)) {
  const TemporaryFolder folder;
  const std::string path = folder.file("large.h5");
  write_small_dump(path);
  edit(path, [](hid_t f) {
    for (const char* name : {"k", "v"}) {
      replace_dataset(f, std::string("/sequences/text/layers/3/") + name, {2, 1 << 22, 64},
                      H5T_IEEE_F32LE);
    }
    replace_dataset(f, "/sequences/text/layers/3/q", {4, 7, 64}, H5T_IEEE_F32LE);
    remove_link(f, "/sequences/text/layers/3/out");
    remove_link(f, "/sequences/text/layers/1");
    remove_link(f, "/sequences/text/token_ids");
  });
  CHECK(with_little_memory([&] {
          const auto messages = errors_of([&] { Dump dump(path); });
          return says(messages, {path, "/sequences/text/layers/3", "memory"});
        }) == 0);
}

}  // namespace memory_limit_test
