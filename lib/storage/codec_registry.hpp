// All codecs, in the order of `kvbench list storage`.
#pragma once

#include <string>
#include <vector>

#include "storage/codec.hpp"

namespace kvbench {

const std::vector<CodecDescription>& all_codecs();

// nullptr if there is none.
const CodecDescription* find_codec(const std::string& id);

}  // namespace kvbench
