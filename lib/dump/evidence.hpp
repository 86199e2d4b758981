// /sequences/<s>/evidence of a dump: which tokens an answer needs, and which rows ask.
#pragma once

#include <memory>
#include <string>

#include "core/evidence.hpp"
#include "hdf5/hdf5.hpp"
#include "system/error.hpp"

namespace kvbench {

// Evidence of a sequence of `tokens` tokens, at `location`; null without the dataset, or with
// errors.
std::shared_ptr<const Evidence> check_evidence(ErrorList& errors, hid_t sequence,
                                               const std::string& location, Index tokens);

// The dataset `token_ids` of a sequence, if there is one.
void check_token_ids(ErrorList& errors, hid_t sequence, const std::string& location, Index tokens);

}  // namespace kvbench
