// All faults of one file, collected so that they are reported together.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace kvbench {

class Faults {
 public:
  // `file`: as the user named it; it begins every message.
  explicit Faults(std::string file) : file_(std::move(file)) {}

  // "file: pointer: what". Saying the same twice is saying it once; after the first thousand only
  // their number is kept.
  void add(const std::string& pointer, const std::string& what);

  // Messages of an earlier collection, as they are.
  void add_all(const std::vector<std::string>& messages);

  bool none() const { return messages_.empty(); }
  std::size_t count() const { return messages_.size() + unlisted_; }

  // All that would be thrown.
  std::vector<std::string> messages() const;

  // Throws InputError with all of them, if there are any.
  void throw_if_any() const;

 private:
  void add_message(std::string message);

  std::string file_;
  std::vector<std::string> messages_;
  std::set<std::string> seen_;
  std::size_t unlisted_ = 0;
};

// `pointer` extended by one key ("~" and "/" escaped) or one index.
std::string child(const std::string& pointer, const std::string& key);
std::string child(const std::string& pointer, std::size_t index);

}  // namespace kvbench
