#include "kind_of_same_name.hpp"

#include <string>

namespace kvbench::test {
namespace {

struct Doubled {
  int value;

  using Result = std::string;
  Result compute(const SharedContext&) const { return std::string(2, static_cast<char>(value)); }
  auto operator<=>(const Doubled&) const = default;
};

}  // namespace

SharedWork work_of_same_name(int value) { return Doubled{value}; }

std::string result_of_same_name(const SharedResults& results, int value) {
  return results.get(Doubled{value});
}

}  // namespace kvbench::test
