// The executor finds what a device would punish: each rule of cuda/machine.hpp broken once.
#include "host_machine.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

namespace kvbench::test {
namespace host_machine_test {

// Types that the concepts of cuda/machine.hpp refuse: an operation that is missing or of another
// type, a body that cannot be copied to a device.
struct SameBlock : HostBlock {};
struct NoWaitForFetches : HostBlock {
  void fetched() = delete;
};
struct UniformByReference : HostBlock {
  template <class T>
  const T& uniform(const T& shared) const;
};
struct SameMachine : HostMachine {};
struct NoRows : HostMachine {
  void download_rows(double*, Index, const double*, Index, Index) = delete;
};
struct HoldsOrThrows : HostMachine {
  template <class T>
  Resident<T> allocate_resident(Index);
};
struct OwnsMemory : cuda::any::Body {
  std::vector<double> numbers;
};
static_assert(cuda::Block<SameBlock>);
static_assert(!cuda::Block<NoWaitForFetches>);
static_assert(!cuda::Block<UniformByReference>);
static_assert(cuda::Machine<SameMachine>);
static_assert(!cuda::Machine<NoRows>);
static_assert(!cuda::Machine<HoldsOrThrows>);
static_assert(cuda::BodyOn<cuda::any::Body, HostBlock>);
static_assert(!cuda::BodyOn<OwnsMemory, HostBlock>);
static_assert(!cuda::BodyOn<cuda::any::Body, NoWaitForFetches>);

// Fetches 2 x 2 numbers as pairs.
struct FetchesPairs {
  static constexpr int kThreads = 32;
  const double* from = nullptr;
  int stride = 2;

  struct Shared {
    double to[2][2];
  };
  template <cuda::Block B>
  void operator()(B& block, Shared& shared) const {
    block.template fetch_pairs<2>(shared.to, from, stride, 2, 2);
    block.fetched();
  }
};

struct WantsShared {
  static constexpr int kThreads = 32;
  struct Shared {
    double numbers[16 << 10];  // 128 KiB
  };
  template <cuda::Block B>
  void operator()(B&, Shared&) const {}
};

// out[i] = i, moved one place to the left in the same phase (a race) or in the next one (none).
struct ShiftLeft {
  static constexpr int kThreads = 64;
  bool races = false;
  double* out = nullptr;

  struct Shared {
    double x[kThreads];
  };
  template <cuda::Block B>
  void operator()(B& block, Shared& shared) const {
    if (races) {
      block.threads([&](int t) {
        shared.x[t] = t;
        out[t] = shared.x[(t + 1) % kThreads];
      });
      return;
    }
    block.threads([&](int t) { shared.x[t] = t; });
    block.threads([&](int t) { out[t] = shared.x[(t + 1) % kThreads]; });
  }
};

std::vector<double> shifted(bool races, std::uint64_t seed) {
  cuda::MemoryLedger ledger(1 << 20);
  HostMachine machine(ledger, seed);
  const auto room = machine.reserve({"a test", 64 * 8, 0, 1});
  auto out = machine.allocate<double>(64);
  machine.launch(ShiftLeft{races, out.data()}, {});
  std::vector<double> result(64);
  machine.download(result.data(), out.data(), 64);
  return result;
}

// out = A B of 64 x 8 and 8 x 24 matrices, fetched from a 60 x 7 and a 7 x 24 one: a warp for 16
// rows.
struct Product {
  static constexpr int kThreads = 128;
  using Tiles = cuda::WarpTiles<16, 24>;
  bool waits = true;  // for what it fetches
  const double* left = nullptr;
  const double* right = nullptr;
  double* out = nullptr;

  struct Shared {
    double left[64][9];
    double right[8][25];
  };
  template <cuda::Block B>
  void operator()(B& block, Shared& shared) const {
    typename B::template Own<Tiles> own(block);
    block.threads([&](int t) { own[t] = Tiles{}; });
    block.template fetch<8>(shared.left, left, 7, 60, 7);
    block.template fetch<24>(shared.right, right, 24, 7, 24);
    if (waits) block.fetched();
    block.template multiply<2>(
        own,
        [&](int t, int i, int s) {
          return shared.left[t / 32 * 16 + Tiles::row(t, i)][4 * s + t % 4];
        },
        [&](int t, int j, int s) { return shared.right[4 * s + t % 4][8 * j + t % 32 / 4]; });
    block.threads([&](int t) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 3; ++j) {
          for (int e = 0; e < 2; ++e) {
            out[(t / 32 * 16 + Tiles::row(t, i)) * 24 + Tiles::column(t, j, e)] =
                own[t].of[i][j][e];
          }
        }
      }
    });
  }
};

TEST_CASE("warps multiply what lanes hold as documented, once it is there") {
  std::vector<double> left(60 * 7);
  std::vector<double> right(7 * 24);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = std::sin(static_cast<double>(i));
  for (std::size_t i = 0; i < right.size(); ++i) right[i] = std::cos(static_cast<double>(i * i));
  cuda::MemoryLedger ledger(1 << 20);
  HostMachine machine(ledger, 1);
  for (const bool waits : {true, false}) {
    std::vector<double> out(64 * 24);
    machine.launch(Product{waits, left.data(), right.data(), out.data()}, {});
    int right_ones = 0;
    for (std::size_t r = 0; r < 64; ++r) {
      for (std::size_t c = 0; c < 24; ++c) {
        double sum = 0.0;
        for (std::size_t k = 0; k < 7 && r < 60; ++k) sum += left[7 * r + k] * right[24 * k + c];
        right_ones += std::fabs(out[24 * r + c] - sum) < 1e-14;
      }
    }
    CHECK(right_ones == (waits ? 64 * 24 : 0));
  }
}

TEST_CASE("reading what a neighbour writes in the same phase does not give the right values") {
  std::vector<double> right(64);
  for (std::size_t t = 0; t < 64; ++t) right[t] = static_cast<double>((t + 1) % 64);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CHECK(shifted(false, seed) == right);
    CHECK(shifted(true, seed) != right);
  }
}

TEST_CASE("pairs that do not lie at multiples of 16 bytes are found") {
  cuda::MemoryLedger ledger(1 << 20);
  HostMachine machine(ledger, 1);
  alignas(16) const double numbers[8] = {};
  CHECK_NOTHROW(machine.launch(FetchesPairs{numbers}, {}));
  CHECK_THROWS_AS(machine.launch(FetchesPairs{numbers + 1}, {}), std::logic_error);
  CHECK_THROWS_AS(machine.launch(FetchesPairs{numbers, 3}, {}), std::logic_error);
}

TEST_CASE("a body that wants more shared memory than the device has is found") {
  cuda::MemoryLedger ledger(1 << 20);
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    HostMachine machine(ledger, seed);
    if (machine.shared_bytes() < static_cast<Index>(sizeof(WantsShared::Shared))) {
      CHECK_THROWS_AS(machine.launch(WantsShared{}, {}), std::logic_error);
      ++refused;
    } else {
      CHECK_NOTHROW(machine.launch(WantsShared{}, {}));
    }
  }
  CHECK(refused == 1);
}

TEST_CASE("memory that was never written is NaN") {
  cuda::MemoryLedger ledger(1 << 20);
  HostMachine machine(ledger, 1);
  const auto room = machine.reserve({"a test", 80, 0, 1});
  auto memory = machine.allocate<double>(10);
  for (int i = 0; i < 10; ++i) CHECK(std::isnan(memory.data()[i]));
}

TEST_CASE("a write beyond the memory is found") {
  cuda::MemoryLedger ledger(1 << 20);
  HostMachine machine(ledger, 1);
  const auto room = machine.reserve({"a test", 80, 0, 1});
  CHECK_THROWS_AS(
      {
        auto memory = machine.allocate<double>(10);
        memory.data()[10] = 1.0;
      },
      std::logic_error);
}

TEST_CASE("allocating more than was reserved is found, what was given back counts") {
  cuda::MemoryLedger ledger(1 << 20);
  HostMachine machine(ledger, 1);
  const auto room = machine.reserve({"a test", 80, 0, 1});
  for (int i = 0; i < 3; ++i) CHECK_NOTHROW(machine.allocate<double>(10));
  const auto resident = machine.allocate<double>(4);
  CHECK_THROWS_AS(machine.allocate<double>(7), std::logic_error);
}

TEST_CASE("every index of a phase is visited once, in an order that differs from run to run") {
  std::set<std::vector<Index>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::mt19937_64 rng(seed);
    HostBlock block(0, 0, 0, 32, rng);
    std::vector<Index> order;
    block.each(97, [&](Index i) { order.push_back(i); });
    CHECK(std::set<Index>(order.begin(), order.end()).size() == 97);
    CHECK(order.size() == 97);
    orders.insert(order);
  }
  CHECK(orders.size() > 5);
}

}  // namespace host_machine_test
}  // namespace kvbench::test
