#include "algorithms/mechanisms/group_rule.hpp"

namespace kvbench {

UntypedField group_choices() {
  return field_of_choices<GroupRule>(
      "group", {{"mean", GroupRule::kMean}, {"max", GroupRule::kMax}, {"sum", GroupRule::kSum}},
      "how the scores of the query heads of a KV head are combined for ranking");
}

}  // namespace kvbench
