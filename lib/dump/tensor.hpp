// One tensor [heads, rows, columns] of a dump, read in slabs of rows of one head.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hdf5/element_type.hpp"
#include "hdf5/hdf5.hpp"
#include "hdf5/stored_elements.hpp"
#include "numerics/aligned.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// How a tensor's elements are stored.
struct StoredType {
  ElementType type = ElementType::kFloat32;
  bool swapped = false;  // in the byte order that is not the machine's
};

// The stored type of a dataset, or a sentence saying why its elements cannot be read.
std::variant<StoredType, std::string> stored_type(hid_t dataset);

class Tensor {
 public:
  // `place`: "FILE: /path/of/dataset", for messages. `row_token`: the token that row 0 belongs to;
  // `row_name`: what messages call a row.
  // The dataset must have passed the structure check: rank 3, known element type.
  Tensor(hid_t file, const std::string& dataset_path, std::string location, Index row_token,
         const char* row_name = "token");

  Index heads() const { return dims_[0]; }
  Index rows() const { return dims_[1]; }
  Index columns() const { return dims_[2]; }
  ElementType type() const { return stored_.type; }

  // Calls visit(row, count, bytes) for rows [first, last) of `head`, in order, in slabs of bounded
  // size: `count` rows of elements as stored. Throws InputError naming dataset, head and token
  // if the data cannot be read or an element is NaN or infinite.
  using Visit = std::function<void(Index row, Index count, const std::vector<std::byte>& bytes)>;
  void for_each_slab(Index head, Index first, Index last, const Visit& visit) const;

  // Rows [first, last) of `head` as doubles, [last - first, columns], in the memory of `room` where
  // they fit. The same errors.
  UnfilledDoubles read(Index head, Index first, Index last, UnfilledDoubles room = {}) const;

 private:
  void read_rows(Index head, Index row, Index count, std::byte* out) const;
  [[noreturn]] void refuse_unreadable(Index head, Index row, Index count,
                                      const std::string& reason) const;
  void require_finite(Index head, Index row, const std::vector<std::byte>& native,
                      std::size_t count) const;

  std::string location_;
  Index row_token_;
  const char* row_name_;
  std::optional<StoredElements> elements_;
  std::array<Index, 3> dims_{};
  StoredType stored_;
  Index slab_rows_ = 1;
};

}  // namespace kvbench
