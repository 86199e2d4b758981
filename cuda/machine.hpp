// How kernels are written so that the same source runs on a GPU and, in tests, on the CPU.
//
// A kernel's body is a struct: its members are the arguments, `Shared` is the block's shared
// memory, kThreads the block's size, and
//     template <Block B> KVBENCH_DEVICE void operator()(B& block, Shared& shared) const
// the work of one block (concept Block below). The work is a sequence of phases over an index
// space:
//   block.each(count, phase)  phase(i) for every i in [0, count), in any order, then a barrier
//   block.threads(phase)      phase(t) once on every thread t in [0, kThreads), then a barrier
//   block.uniform(x)          the value of shared `x`, read by all threads, then a barrier
//   B::Own<T>                 own[t]: what thread t keeps from phase to phase, in its registers
//   block.x, block.y, block.z the block's place in the grid
// Products by warps, on tensor cores if there are any, and copies that run concurrently:
//   block.template multiply<kSteps>(own, a, b, fetches)
//                             a phase in which every warp of 32 threads adds A B to its WarpTiles
//                             own[t]; A has 4 kSteps columns. With l = t % 32, a(t, i, s) is A's
//                             row 8 i + l / 4, column 4 s + l % 4, and b(t, j, s) is B's row
//                             4 s + l % 4, column 8 j + l / 4. How the four products of a step are
//                             added is the device's choice. `fetches()`, which may be left out,
//                             begins fetches next to the products. It ends as fetched() does
//   block.template fetch<kColumns>(to, from, stride, rows, columns)
//                             begins to copy a matrix of the device's memory, whose rows are
//                             `stride` doubles apart, to the shared matrix `to`, and zeros to where
//                             to[.][0, kColumns) reaches beyond it; no barrier
//   block.template fetch_pairs<kColumns>(to, from, stride, rows, columns)
//                             the same by ints and without a branch, where rows begin at multiples
//                             of 16 bytes and `columns` is even
//   block.fetched()           a barrier: what was fetched is there. Until then nobody may read or
//                             write it
// Within a phase no index may read what another one writes; nothing shared is written or read
// outside of phases. Whatever order an executor chooses, the bits are the same.
//
// A machine runs bodies and moves data (concept Machine below: CudaMachine on a device, HostMachine
// in tests):
//   machine.reserve(need)            Reservation of device memory, see cuda/memory_ledger.hpp
//   machine.allocate<T>(count)       memory of the device, freed with the returned object; .data()
//   machine.allocate_resident<T>(count)           an optional: such memory that outlives the
//   machine, none where
//                                    the ledger has no room for it
//   machine.upload(to, from, count)  machine.download(to, from, count)  machine.clear(at, count)
//   machine.download_rows(to, stride, from, columns, rows)  rows `stride` doubles apart on the host
//   machine.launch(body, {x, y, z})  runs the body on every block of the grid
//   machine.shared_bytes()           the most that a body's `Shared` may have
//   machine.urgent()                 until the returned object is gone, what is launched and copied
//                                    goes before what other machines have launched and not begun
//   machine.copies()                 ResidentCopies: which matrices of the host are on the device
//   machine.wait()                   returns when all of this is done
// All of it is in order; download returns when the data is there. Data that another machine will
// read must be complete first.
//
// The concepts say what the compiler can check of this: which operations there are, on what types.
// The comments above define them, and tests/cuda checks them.
#pragma once

#include <concepts>
#include <type_traits>

#include "core/stream.hpp"
#include "cuda/memory_ledger.hpp"
#include "cuda/resident_copies.hpp"
#include "numerics/canonical.hpp"
#include "numerics/matrix_view.hpp"

#ifdef __CUDACC__
#define KVBENCH_DEVICE __device__
#define KVBENCH_UNROLL _Pragma("unroll")  // before a loop over what lies in registers
#else
#define KVBENCH_DEVICE
#define KVBENCH_UNROLL
#endif

namespace kvbench::cuda {

struct Grid {
  Index x = 1;  // any
  Index y = 1;  // at most 65535
  Index z = 1;  // at most 65535
};

// kRows x kColumns numbers resident by the 32 threads of a warp: of[i][j][e] of thread t, l = t %
// 32, is that of row 8 i + l / 4, column 8 j + 2 (l % 4) + e.
template <int kRows, int kColumns>
struct WarpTiles {
  static_assert(kRows % 16 == 0 && kColumns % 8 == 0);
  static constexpr int kDown = kRows / 8;
  static constexpr int kAcross = kColumns / 8;
  double of[kDown][kAcross][2];

  KVBENCH_DEVICE static int row(int t, int i) { return 8 * i + t % 32 / 4; }
  KVBENCH_DEVICE static int column(int t, int j, int e) { return 8 * j + t % 4 * 2 + e; }
};

// Stand-ins for any phase, factor and body in the concepts; nothing of it is ever run.
namespace any {

struct IndexPhase {
  KVBENCH_DEVICE void operator()(Index) const {}
};
struct ThreadPhase {
  KVBENCH_DEVICE void operator()(int) const {}
};
struct Factor {
  KVBENCH_DEVICE double operator()(int, int, int) const { return 0.0; }
};
struct Fetches {
  KVBENCH_DEVICE void operator()() const {}
};
using Tiles = WarpTiles<16, 8>;

}  // namespace any

// Operations of a body on the block that runs it.
template <class B>
concept Block = requires(B& block, typename B::template Own<any::Tiles>& own, double (&to)[2][4],
                         const double* from, const any::Factor& factor, const any::Fetches& fetches,
                         Index n, const double& shared) {
  { block.x } -> std::convertible_to<Index>;
  { block.y } -> std::convertible_to<Index>;
  { block.z } -> std::convertible_to<Index>;
  { block.each(n, any::IndexPhase()) } -> std::same_as<void>;
  { block.threads(any::ThreadPhase()) } -> std::same_as<void>;
  { block.uniform(shared) } -> std::same_as<double>;
  requires std::constructible_from<typename B::template Own<double>, B&>;
  { own[0] } -> std::same_as<any::Tiles&>;
  { block.template fetch<4>(to, from, n, n, n) } -> std::same_as<void>;
  { block.template fetch_pairs<4>(to, from, 4, 2, 4) } -> std::same_as<void>;
  { block.fetched() } -> std::same_as<void>;
  { block.template multiply<1>(own, factor, factor) } -> std::same_as<void>;
  { block.template multiply<1>(own, factor, factor, fetches) } -> std::same_as<void>;
};

// The work of one block `B`. A machine copies it to where it runs; nothing in shared memory is
// constructed or destroyed.
template <class T, class B>
concept BodyOn = Block<B> && std::is_trivially_copyable_v<T> &&
                 std::is_trivially_copyable_v<typename T::Shared> &&
                 requires(const T& body, B& block, typename T::Shared& shared) {
                   { T::kThreads } -> std::convertible_to<int>;
                   { body(block, shared) } -> std::same_as<void>;
                 };

namespace any {

struct Body {
  static constexpr int kThreads = 32;
  struct Shared {
    double number;
  };
  template <Block B>
  KVBENCH_DEVICE void operator()(B&, Shared&) const {}
};

}  // namespace any

// Operations of a kernel's host logic.
template <class M>
concept Machine = requires(M& machine, const MemoryNeed& need, double* to, const double* from,
                           Index n, Grid grid) {
  { machine.reserve(need) } -> std::same_as<MemoryLedger::Reservation>;
  { machine.template allocate<double>(n).data() } -> std::same_as<double*>;
  { machine.template allocate_resident<double>(n).has_value() } -> std::same_as<bool>;
  { machine.template allocate_resident<double>(n)->data() } -> std::same_as<double*>;
  { machine.upload(to, from, n) } -> std::same_as<void>;
  { machine.download(to, from, n) } -> std::same_as<void>;
  { machine.download_rows(to, n, from, n, n) } -> std::same_as<void>;
  { machine.clear(to, n) } -> std::same_as<void>;
  { machine.launch(any::Body(), grid) } -> std::same_as<void>;
  { machine.shared_bytes() } -> std::same_as<Index>;
  machine.urgent();
  { machine.copies() } -> std::same_as<ResidentCopies&>;
  { machine.wait() } -> std::same_as<void>;
};

// Makes the machine of a call: several threads of the host work with one each.
template <class F>
concept MachineFactory = requires(const F& make) { requires Machine<decltype(make())>; };

KVBENCH_HOST_DEVICE inline Index smaller(Index a, Index b) { return a < b ? a : b; }
KVBENCH_HOST_DEVICE inline Index larger(Index a, Index b) { return a > b ? a : b; }
KVBENCH_HOST_DEVICE inline Index blocks_of(Index size, Index count) {
  return (count + size - 1) / size;
}
KVBENCH_HOST_DEVICE inline double infinity() { return from_bits(0x7ff0000000000000ULL); }

}  // namespace kvbench::cuda
