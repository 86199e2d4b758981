#pragma once

#include "algorithms/shared_work.hpp"

namespace kvbench::test {

// Work whose type has the name of one in shared_work_test.cpp, and gives text.
SharedWork work_of_same_name(int value);
std::string result_of_same_name(const SharedResults& results, int value);

}  // namespace kvbench::test
