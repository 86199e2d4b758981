// Messages that quote a file, in which a word can be as long as the file. ErrorList shortens what
// it collects, and the program what it prints.
#pragma once

#include <string>

namespace kvbench {

// `message` as it is, or, of one of more than 4 KiB, its beginning and its end, where the remedy
// stands.
std::string shortened(std::string message);

// A whole number >= 0, or "about 1e304" where it has more than 20 digits.
std::string count_text(double count);

}  // namespace kvbench
