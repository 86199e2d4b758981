// Arrays of doubles that begin at a cache line, large ones in large pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace kvbench {

template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kLargePage = std::size_t{2} << 20;

  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}  // NOLINT(google-explicit-constructor): an allocator's

  T* allocate(std::size_t count) {
    void* p = ::operator new(count * sizeof(T), alignment(count));
    // A hint only: filling pages of 4 KiB can take longer than what is computed into them.
    if (is_large(count)) ::madvise(p, count * sizeof(T), MADV_HUGEPAGE);
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t count) { ::operator delete(p, alignment(count)); }
  bool operator==(const LineAllocator&) const = default;

 private:
  static bool is_large(std::size_t count) { return count * sizeof(T) >= 4 * kLargePage; }
  static std::align_val_t alignment(std::size_t count) {
    return std::align_val_t{is_large(count) ? kLargePage : kLine};
  }
};

using AlignedDoubles = std::vector<double, LineAllocator<double>>;

// Elements that are given no value have none, so that memory is first touched by what fills it.
template <class T>
struct UnfilledAllocator : LineAllocator<T> {
  template <class U>
  struct rebind {  // NOLINT(readability-identifier-naming): the standard library's name
    using other = UnfilledAllocator<U>;
  };

  UnfilledAllocator() = default;
  template <class U>
  UnfilledAllocator(const UnfilledAllocator<U>&) {}  // NOLINT(google-explicit-constructor)

  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Arguments>
  void construct(U* p, Arguments&&... arguments) {
    ::new (static_cast<void*>(p)) U(std::forward<Arguments>(arguments)...);
  }
};

using UnfilledDoubles = std::vector<double, UnfilledAllocator<double>>;

}  // namespace kvbench
