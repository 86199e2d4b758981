// Links that would lead out of a dump are refused by name and never followed; so is a path that is
// not a file.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>

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

// `name`, 2 x 12 x columns of float16, with its elements in other files.
void replace_by(hid_t file, const std::string& name, hsize_t columns,
                const std::function<void(hid_t properties, hid_t space)>& lay_out) {
  remove_link(file, name);
  const hsize_t dims[] = {2, 12, columns};
  const hdf5::Handle space(H5Screate_simple(3, dims, nullptr));
  const hdf5::Handle properties = hdf5::dataset_properties();
  lay_out(properties.get(), space.get());
  const hdf5::Handle dataset(H5Dcreate2(file, name.c_str(), H5T_IEEE_F32LE, space.get(),
                                        H5P_DEFAULT, properties.get(), H5P_DEFAULT));
}

void store_externally(hid_t file, const std::string& name, const std::string& target) {
  replace_by(file, name, 4, [&](hid_t properties, hid_t) {
    hdf5::check(H5Pset_external(properties, target.c_str(), 0, H5F_UNLIMITED));
  });
}

void map_virtually(hid_t file, const std::string& name, const std::string& target) {
  replace_by(file, name, 4, [&](hid_t properties, hid_t space) {
    hdf5::check(H5Pset_virtual(properties, space, target.c_str(), name.c_str(), space));
  });
}

void link_to(hid_t file, const std::string& name, const std::string& target) {
  remove_link(file, name);
  hdf5::check(H5Lcreate_external(target.c_str(), (kLayer + "/k").c_str(), file, name.c_str(),
                                 H5P_DEFAULT, H5P_DEFAULT));
}

// Takes the place of the C library's, also for HDF5.
extern "C" int flock(int descriptor, int operation) noexcept {
  if (flock_error != 0) {
    errno = flock_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}

TEST_CASE("elements of other files are refused by name, whatever the other file is") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  const std::string other = folder.file("other.h5");
  const std::string pipe = folder.file("pipe");  // opened for reading, it would block for ever
  write_small_dump(other);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& target : {other, pipe, std::string("/etc/passwd"), std::string(".")}) {
    CAPTURE(target);
    for (const std::string tensor : {"k", "out"}) {
      const std::string name = (kLayer + "/").append(tensor);
      write_small_dump(path);
      edit(path, [&](hid_t f) { store_externally(f, name, target); });
      CHECK(says(refusal_of(path), {path, name + ": ", target, "external storage"}));
      write_small_dump(path);
      edit(path, [&](hid_t f) { map_virtually(f, name, target); });
      CHECK(says(refusal_of(path),
                 {path, name + ": ", "virtual dataset", "h5repack -l CONTI OLD NEW"}));
      write_small_dump(path);
      edit(path, [&](hid_t f) { link_to(f, name, target); });
      CHECK(says(refusal_of(path), {path, name + ": ", "external link"}));
    }
  }
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
