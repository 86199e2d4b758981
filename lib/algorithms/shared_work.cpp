#include "algorithms/shared_work.hpp"

#include <cxxabi.h>

#include <cstdlib>

namespace kvbench {

std::string WorkKind::name() const {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type_.name(), nullptr, nullptr, nullptr), &std::free);
  return name == nullptr ? type_.name() : name.get();
}

bool SharedResults::has(const WorkKey& key) const { return outcomes_.count(key) != 0; }

void SharedResults::put(const WorkKey& key, WorkOutcome outcome) {
  outcomes_.insert_or_assign(key, std::move(outcome));
}

void SharedResults::add_rows(const SharedWork& piece, const SharedContext& context,
                             const RowBlock& block) {
  const auto outcome = outcomes_.find(piece.key());
  if (outcome == outcomes_.end() || outcome->second.result == nullptr) return;
  piece.add_rows(context, block, outcome->second.result.get());
}

void SharedResults::fail(const WorkKey& key, std::string reason) {
  put(key, {nullptr, std::move(reason)});
}

const void* SharedResults::result(const WorkKey& key) const {
  const WorkOutcome& outcome = outcomes_.at(key);
  if (outcome.result == nullptr) throw CellError(outcome.failure);
  return outcome.result.get();
}

}  // namespace kvbench
