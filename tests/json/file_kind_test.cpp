#include "json/file_kind.hpp"

#include <doctest/doctest.h>

#include "system/error.hpp"

namespace kvbench::test {
namespace file_kind_test {

using nlohmann::json;

TEST_CASE("a document is known by what only its kind has") {
  CHECK(kind_of_document({{"kind", "kvbench.results"}}) == "a results file");
  CHECK(kind_of_document({{"kind", "kvbench.journal"}}) == "a journal");
  CHECK(kind_of_document({{"kind", "kvbench.inspection"}}) == "an inspection");
  CHECK(kind_of_document({{"algorithms", json::array()}}) == "a sweep file");
  CHECK(kind_of_document({{"bounds", json::array()}}) == "a bounds file");
  CHECK(!kind_of_document({{"kind", "another"}}));
  CHECK(!kind_of_document({{"kind", 7}}));
  CHECK(!kind_of_document(json::array()));
}

TEST_CASE("a file of another kind is refused, one of no kind is not") {
  CHECK_THROWS_AS(refuse_other_kind({{"bounds", 1}}, "a sweep file", "a.json", "name a sweep"),
                  InputError);
  CHECK_NOTHROW(refuse_other_kind({{"algorithms", 1}}, "a sweep file", "a.json", "name a sweep"));
  CHECK_NOTHROW(refuse_other_kind({{"sweep", 1}}, "a sweep file", "a.json", "name a sweep"));
}

TEST_CASE("HDF5 is known by its first eight bytes") {
  CHECK_THROWS_AS(refuse_hdf5("\x89HDF\r\n\x1a\n...", "a.h5", "name a sweep"), InputError);
  CHECK_NOTHROW(refuse_hdf5("\x89HDF\r\n", "a.h5", "name a sweep"));
  CHECK_NOTHROW(refuse_hdf5("", "a.h5", "name a sweep"));
}

}  // namespace file_kind_test
}  // namespace kvbench::test
