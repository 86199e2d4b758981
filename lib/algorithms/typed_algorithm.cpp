#include "algorithms/typed_algorithm.hpp"

#include "parameters/bind_parameters.hpp"

namespace kvbench {

AlgorithmDescription described(const AlgorithmFacts& facts, const UntypedTable& table,
                               bool takes_memory) {
  AlgorithmDescription d;
  static_cast<AlgorithmFacts&>(d) = facts;
  d.parameters = table.rows();
  for (Parameter& parameter : d.parameters) {
    parameter.takes_memory = parameter.takes_memory && takes_memory;
    if (parameter.kind != Parameter::Kind::kCalibration) continue;
    d.derived.push_back({kCalibratedOnText,
                         "with a calibration file, of the method or of its storage: whether it was "
                         "made from this text too, by its keys"});
  }
  return d;
}

template void bind(const std::shared_ptr<const UntypedTable>&, const UntypedFunction<bool()>&,
                   std::function<bool(const Params&)>&);
template void bind(const std::shared_ptr<const UntypedTable>&, const UntypedFunction<Needs()>&,
                   std::function<Needs(const Params&)>&);
template void bind(
    const std::shared_ptr<const UntypedTable>&,
    const UntypedFunction<std::optional<std::pair<std::string, std::string>>()>&,
    std::function<std::optional<std::pair<std::string, std::string>>(const Params&)>&);
template void bind(
    const std::shared_ptr<const UntypedTable>&,
    const UntypedFunction<std::optional<std::string>(const StreamShape&, Index)>&,
    std::function<std::optional<std::string>(const Params&, const StreamShape&, Index)>&);
template void bind(
    const std::shared_ptr<const UntypedTable>&,
    const UntypedFunction<std::optional<Misfit>(const StreamId&, const StreamShape&, Index)>&,
    std::function<std::optional<Misfit>(const Params&, const StreamId&, const StreamShape&,
                                        Index)>&);
template void bind(
    const std::shared_ptr<const UntypedTable>&,
    const UntypedFunction<std::vector<SharedWork>(const StreamShape&, Index, std::uint32_t)>&,
    std::function<std::vector<SharedWork>(const Params&, const StreamShape&, Index,
                                          std::uint32_t)>&);
template void bind(const std::shared_ptr<const UntypedTable>&,
                   const UntypedFunction<ReplayScope()>&,
                   std::function<ReplayScope(const Params&)>&);
template void bind(const std::shared_ptr<const UntypedTable>&,
                   const UntypedFunction<ModelWork(std::uint32_t)>&,
                   std::function<ModelWork(const Params&, std::uint32_t)>&);
template void bind(const std::shared_ptr<const UntypedTable>&,
                   const UntypedFunction<CalibratedNumbers(const CalibrationTexts&)>&,
                   std::function<CalibratedNumbers(const Params&, const CalibrationTexts&)>&);
template void bind(const std::shared_ptr<const UntypedTable>&,
                   const UntypedFunction<std::unique_ptr<Algorithm>(const CellContext&)>&,
                   std::function<std::unique_ptr<Algorithm>(const Params&, const CellContext&)>&);
template void bind(
    const std::shared_ptr<const UntypedTable>&,
    const UntypedFunction<std::optional<KeptCounts>(const StreamShape&, Index)>&,
    std::function<std::optional<KeptCounts>(const Params&, const StreamShape&, Index)>&);
template void bind(const std::shared_ptr<const UntypedTable>&,
                   const UntypedFunction<BudgetParts(const StreamShape&, Index)>&,
                   std::function<BudgetParts(const Params&, const StreamShape&, Index)>&);
template void bind(const std::shared_ptr<const UntypedTable>&,
                   const UntypedFunction<CellMemory(const StreamShape&, Index)>&,
                   std::function<CellMemory(const Params&, const StreamShape&, Index)>&);
template void bind(const std::shared_ptr<const UntypedTable>&,
                   const UntypedFunction<std::optional<std::string>()>&,
                   std::function<std::optional<std::string>(const Params&)>&);

}  // namespace kvbench
