// Values as this machine has them in memory, put one after another: the bodies of a CellLog.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kvbench {

class BytesOut {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  // Writes the number of values, then the values.
  template <class T>
  void put_all(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(values.size());
    if (values.empty()) return;
    bytes_.append(reinterpret_cast<const char*>(values.data()), sizeof(T) * values.size());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Takes them in the same order. Throws std::logic_error where there are fewer: what is read has
// passed its checksum.
class BytesIn {
 public:
  explicit BytesIn(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, advance(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> take_all() {
    const auto count = take<std::size_t>();
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), advance(sizeof(T) * count), sizeof(T) * count);
    return values;
  }

 private:
  const char* advance(std::size_t size) {
    if (rest_.size() < size) throw std::logic_error("a record is shorter than its writer made it");
    const char* at = rest_.data();
    rest_.remove_prefix(size);
    return at;
  }

  std::string_view rest_;
};

}  // namespace kvbench
