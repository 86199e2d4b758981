// Arrays of doubles that begin at a cache line.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace kvbench {

template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* p, std::size_t) { ::operator delete(p, kLine); }
  bool operator==(const LineAllocator&) const = default;
};

using AlignedDoubles = std::vector<double, LineAllocator<double>>;

}  // namespace kvbench
