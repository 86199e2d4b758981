// Functions of parameters: of a file's own struct where an algorithm or a codec is written, of
// Params where the rest of the program sees it.
#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include "parameters/parameters.hpp"

namespace kvbench {

// A function of a struct that is known by its address, and of others: called where it is set.
template <class Signature>
class UntypedFunction;

template <class R, class... Rest>
class UntypedFunction<R(Rest...)> {
 public:
  explicit operator bool() const { return call_ != nullptr; }
  R operator()(const void* p, Rest... rest) const { return call_(p, rest...); }

 protected:
  std::function<R(const void*, Rest...)> call_;
};

// A function of the struct P and of others, in the place of a std::function.
template <class P, class Signature>
class StructFunction;

template <class P, class R, class... Rest>
class StructFunction<P, R(Rest...)> : public UntypedFunction<R(Rest...)> {
 public:
  StructFunction() = default;
  template <class F>
    requires(std::is_invocable_r_v<R, const F&, const P&, Rest...>)
  // NOLINTNEXTLINE(google-explicit-constructor): as std::function's
  StructFunction(F f) {
    if constexpr (std::is_empty_v<F> && std::is_default_constructible_v<F>) {
      // One type of function per signature: for a lambda without captures nothing else is compiled.
      using Plain = R (*)(const void*, Rest...);
      this->call_ = Plain(
          [](const void* p, Rest... rest) -> R { return F{}(*static_cast<const P*>(p), rest...); });
    } else {
      this->call_ = [f = std::move(f)](const void* p, Rest... rest) -> R {
        return f(*static_cast<const P*>(p), rest...);
      };
    }
  }
};

template <class P, class Signature>
struct FunctionOfType {
  using Type = StructFunction<P, Signature>;
};
template <class R, class... Rest>
struct FunctionOfType<Params, R(Rest...)> {
  using Type = std::function<R(const Params&, Rest...)>;
};
template <class P, class Signature>
using FunctionOf = typename FunctionOfType<P, Signature>::Type;

}  // namespace kvbench
