#include "verify/sample.hpp"

#include <algorithm>
#include <utility>

#include "core/pair_names.hpp"
#include "numerics/counter_rng.hpp"

namespace kvbench {

Sample draw_sample(const FileRecords& records, std::size_t count, std::uint32_t seed,
                   const std::string& device, const std::set<std::string>& fingerprints,
                   const std::set<std::string>& unknown) {
  const CounterRng draw(seed, 0, "verify/sample");
  Sample sample;
  std::vector<std::pair<std::size_t, Json>> drawn;
  const auto text_at = [](const Json& key, const char* name) {
    const auto found = key.find(name);
    return found != key.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  records.visit([&](const Json& cell) {
    if (cell.at("status") != "ok") return;
    ++sample.ok;
    const Json& key = cell.at("key");
    if (unknown.contains(ids_of_pair(text_at(key, "algorithm")).first)) {
      ++sample.unknown;
      return;
    }
    if (text_at(key, "device") != device || !fingerprints.contains(text_at(key, "dump"))) return;
    const std::size_t number = sample.eligible++;
    if (number < count) {
      drawn.emplace_back(number, cell);
      return;
    }
    const double u = draw.uniform53(static_cast<std::uint32_t>(number));
    const auto place = static_cast<std::size_t>(u * static_cast<double>(number + 1));
    if (place < drawn.size()) drawn[place] = {number, cell};
  });
  std::sort(drawn.begin(), drawn.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [number, cell] : drawn) sample.cells.push_back(std::move(cell));
  return sample;
}

}  // namespace kvbench
