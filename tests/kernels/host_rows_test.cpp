// Answers from exponentials that the host keeps as answers read them.
#include "kernels/host_rows.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

#include "support/changing_sketches.hpp"
#include "support/kernel_contracts.hpp"
#include "support/wrapped_kernels.hpp"

namespace kvbench::test {
namespace host_rows_test {

// A table that keeps rows as the host does.
class KeptOnHost final : public WrappedKernels {
 public:
  KeptOnHost() : WrappedKernels(cpu_kernels()) {}

  std::shared_ptr<const ResidentRows> make_rows_resident(
      const Stream& stream, const std::vector<Index>& rows) const override {
    struct Kept {
      LogitBlock block;
      UnfilledDoubles room;
      std::shared_ptr<const ResidentRows> rows;
    };
    const auto kept = std::make_shared<Kept>();
    kept->room.assign(7, -7.0);  // rooms are used again
    cpu_kernels().logits(stream, rows, kept->block);
    kept->rows = rows_on_host(stream, kept->block, kept->room);
    return {kept, kept->rows.get()};
  }

 private:
  void around(const char*, const std::function<void()>& call) const override { call(); }
};

TEST_CASE("answers of rows that the host keeps are those by their logits, bit by bit") {
  check_resident_rows(KeptOnHost());
}

TEST_CASE("answers by the host's rows are those by logits, however the sketches change") {
  AnswerCounts counts;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    check_changing_sketches(cpu_kernels(), true, seed, counts);
  }
  CHECK(counts.answers > 5000);
  CHECK(counts.empty > 200);
  CHECK(counts.merged > 200);
}

}  // namespace host_rows_test
}  // namespace kvbench::test
