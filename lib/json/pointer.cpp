#include "json/pointer.hpp"

namespace kvbench {

std::string child(const std::string& pointer, const std::string& key) {
  std::string result = pointer + '/';
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

std::string child(const std::string& pointer, std::size_t index) {
  return pointer + '/' + std::to_string(index);
}

}  // namespace kvbench
