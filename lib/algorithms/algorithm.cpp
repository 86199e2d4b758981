#include "algorithms/algorithm.hpp"

namespace kvbench {

AlgorithmFacts::AlgorithmFacts() = default;
AlgorithmFacts::AlgorithmFacts(const AlgorithmFacts&) = default;
AlgorithmFacts::AlgorithmFacts(AlgorithmFacts&&) noexcept = default;
AlgorithmFacts& AlgorithmFacts::operator=(const AlgorithmFacts&) = default;
AlgorithmFacts& AlgorithmFacts::operator=(AlgorithmFacts&&) noexcept = default;
AlgorithmFacts::~AlgorithmFacts() = default;

AlgorithmDescription::AlgorithmDescription() {
  const auto no = [](const Params&) { return false; };
  const auto nothing = [](const Params&) { return std::optional<std::string>(); };
  randomised = no;
  needs = [](const Params&) { return Needs{}; };
  validate = [](const Params&) { return std::nullopt; };
  skip_reason = [](const Params&, const StreamShape&, Index) { return std::nullopt; };
  shared_work = [](const Params&, const StreamShape&, Index, std::uint32_t) {
    return std::vector<SharedWork>{};
  };
  replay_scope = [](const Params&) { return ReplayScope::kHead; };
  not_rows = nothing;
  only_appends = no;
  not_stored = nothing;
  makes_values = no;
  weighs = no;
  never_evicts = no;
  not_ranked = nothing;
  memory = [](const Params&, const StreamShape&, Index) { return CellMemory{}; };
}
AlgorithmDescription::AlgorithmDescription(const AlgorithmDescription&) = default;
AlgorithmDescription::AlgorithmDescription(AlgorithmDescription&&) noexcept = default;
AlgorithmDescription& AlgorithmDescription::operator=(const AlgorithmDescription&) = default;
AlgorithmDescription& AlgorithmDescription::operator=(AlgorithmDescription&&) noexcept = default;
AlgorithmDescription::~AlgorithmDescription() = default;

}  // namespace kvbench
