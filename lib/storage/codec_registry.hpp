// All codecs, in the order of `kvbench list storage`.
#pragma once

#include <string>
#include <vector>

#include "storage/codec.hpp"

namespace kvbench {

const std::vector<CodecDescription>& all_codecs();

// rotate, centre and rope: the last parameters of every codec whose vectors they may change
// (CodecDescription::can_rotate).
const std::vector<Parameter>& vector_parameters();

// nullptr if there is none.
const CodecDescription* find_codec(const std::string& id);

}  // namespace kvbench
