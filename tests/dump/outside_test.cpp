// Links that would lead out of a dump are refused by name and never followed; so is a path that is
// not a file.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "system/file.hpp"

using namespace kvbench;

namespace outside_test {

const std::string kLayer = "/sequences/text/layers/3";

int flock_error = 0;  // errno that flock() is to fail with; 0: it works

std::vector<std::string> refusal_of(const std::string& path) {
  return errors_of([&] { Dump dump(path); });
}

// Takes the place of the C library's, also for HDF5.
extern "C" int flock(int descriptor, int operation) noexcept {
  if (flock_error != 0) {
    errno = flock_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}

TEST_CASE("external links are refused wherever they stand, and behind soft links") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  const std::string other = folder.file("other.h5");
  write_small_dump(other);
  for (const std::string name :
       {"/sequences", "/sequences/text", "/sequences/text/layers", "/sequences/text/layers/3",
        "/sequences/text/token_ids", "/rope", "/rope/inv_freq"}) {
    CAPTURE(name);
    write_small_dump(path);
    edit(path, [&](hid_t f) {
      remove_link(f, name);
      hdf5::check(H5Lcreate_external(other.c_str(), name.c_str(), f, name.c_str(), H5P_DEFAULT,
                                     H5P_DEFAULT));
    });
    CHECK(says(refusal_of(path), {path, name + ": ", "external link"}));
  }
  write_small_dump(path);
  edit(path, [&](hid_t f) {
    hdf5::check(H5Lcreate_external(other.c_str(), "/", f, "/elsewhere", H5P_DEFAULT, H5P_DEFAULT));
    remove_link(f, kLayer + "/k");
    hdf5::check(H5Lcreate_soft(("/elsewhere" + kLayer + "/k").c_str(), f, (kLayer + "/k").c_str(),
                               H5P_DEFAULT, H5P_DEFAULT));
  });
  CHECK(says(refusal_of(path), {path, kLayer + "/k: ", "external link"}));
  // Within the file a soft link is as good as any.
  write_small_dump(path);
  edit(path, [&](hid_t f) {
    remove_link(f, kLayer + "/k");
    hdf5::check(H5Lcreate_soft("/sequences/text/layers/1/k", f, (kLayer + "/k").c_str(),
                               H5P_DEFAULT, H5P_DEFAULT));
  });
  CHECK(refusal_of(path).empty());
}

TEST_CASE("what is not a regular file is refused without waiting for it") {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::string link = folder.file("link.h5");
  std::filesystem::create_symlink("/dev/zero", link);
  for (const std::string& path : {pipe, link, std::string("/dev/null")}) {
    CHECK(says(refusal_of(path), {path, "is not a regular file"}));
  }
}

TEST_CASE("a file that the system cannot read is not called one of another kind") {
  const std::string path = "/proc/self/mem";  // regular, and has nothing at its beginning
  CHECK(says(refusal_of(path), {path, "cannot be read (Input/output error)"}));
}

TEST_CASE("a file system without locks is not an error, and a dump being written is") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    flock_error = error;
    CAPTURE(error);
    CHECK(refusal_of(path).empty());
    flock_error = 0;
  }
  const hdf5::Handle writer = hdf5::open_file(path, hdf5::Access::kReadWrite);
  CHECK(says(refusal_of(path), {path, "is being written by another program"}));
}

TEST_CASE("files are written and read where the file system has no locks") {
  const TemporaryFolder folder;
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    CAPTURE(error);
    const std::string path = folder.file(std::to_string(error) + ".h5");
    flock_error = error;
    CHECK(errors_of([&] { write_small_dump(path); }).empty());
    CHECK(hdf5::open_file(path, hdf5::Access::kRead).get() >= 0);
    CHECK(refusal_of(path).empty());
    flock_error = 0;
  }
  const std::string path = folder.file("locked.h5");
  const hdf5::Handle writer = hdf5::create_file(path);
  CHECK_THROWS_AS(hdf5::create_file(path), hdf5::Error);
}

TEST_CASE("an open dump keeps writers out") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  const UniqueFd writer(::open(path.c_str(), O_RDWR));
  {
    const Dump dump(path);
    CHECK(::flock(writer.get(), LOCK_EX | LOCK_NB) != 0);
  }
  CHECK(::flock(writer.get(), LOCK_EX | LOCK_NB) == 0);
}

}  // namespace outside_test
