// Words of `kvbench verify`.
#pragma once

#include "verify/verify.hpp"

namespace kvbench {

// Prints the first differences as a table, and what was compared.
void print_verification(const VerifyRequest& request, const Verification& verification);

}  // namespace kvbench
