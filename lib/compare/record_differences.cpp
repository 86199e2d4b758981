#include "compare/record_differences.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace kvbench {
namespace {

constexpr std::array<std::string_view, 5> kLeftOut = {"id", "key", "label", "repro", "timing"};

class Comparer {
 public:
  explicit Comparer(const NumberTolerance& tolerance) : tolerance_(tolerance) {}

  void members(const std::string& path, const Json& recorded, const Json& recomputed) {
    for (const auto& [name, value] : recorded.items()) {
      if (path.empty() && std::find(kLeftOut.begin(), kLeftOut.end(), name) != kLeftOut.end()) {
        continue;
      }
      std::string place = path;
      if (!place.empty()) place += '.';
      place += name;
      compare(place, value, recomputed.value(name, Json()));
    }
  }

  std::vector<RecordDifference> differences;

 private:
  void compare(const std::string& path, const Json& recorded, const Json& recomputed) {
    if (recorded.is_object() && recomputed.is_object()) {
      members(path, recorded, recomputed);
    } else if (recorded.is_array() && recomputed.is_array() &&
               recorded.size() == recomputed.size()) {
      for (std::size_t i = 0; i < recorded.size(); ++i) {
        compare(path + "[" + std::to_string(i) + "]", recorded[i], recomputed[i]);
      }
    } else if (!is_same(recorded, recomputed)) {
      differences.push_back({path, recorded, recomputed});
    }
  }

  bool is_same(const Json& a, const Json& b) const {
    if (!a.is_number() || !b.is_number()) return a == b;
    const auto x = a.get<double>();
    const auto y = b.get<double>();
    if (x == y) return true;
    const double largest = std::max(std::abs(x), std::abs(y));
    return std::abs(x - y) <= tolerance_.absolute + tolerance_.relative * largest;
  }

  NumberTolerance tolerance_;
};

}  // namespace

std::vector<RecordDifference> record_differences(const Json& recorded, const Json& recomputed,
                                                 const NumberTolerance& tolerance) {
  Comparer comparer(tolerance);
  comparer.members("", recorded, recomputed);
  return comparer.differences;
}

}  // namespace kvbench
