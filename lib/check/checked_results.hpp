// Results as bounds look at them: of each record what they need, one in memory at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "check/bounds.hpp"
#include "results/distinct_records.hpp"
#include "system/record_store.hpp"

namespace kvbench {

// Places of records: 0, 1, ..
using Places = std::vector<std::uint32_t>;

// The cells of results, or their records of whole layers.
class CheckedRecords {
 public:
  // `path`: of the file, for messages; `member`: "cells" or "layers".
  CheckedRecords(const std::string& path, const char* member) : distinct_(path, member) {}

  std::size_t size() const { return store_.size(); }
  void add(const BoundsFile& bounds, const Json& record);
  // Throws InputError if something added was not a record, or of the same cell as another.
  void require_distinct() const;

  class Reader {
   public:
    explicit Reader(const CheckedRecords& records) : reader_(records.store_) {}
    Json at(std::size_t place) { return parse_line(reader_.at(place)); }

   private:
    RecordStore::Reader reader_;
  };

  // The places that each of the selectors matches.
  std::vector<Places> select(const std::vector<CellSelector>& selectors) const;

 private:
  RecordStore store_;
  DistinctRecords distinct_;
  std::exception_ptr trouble_;
};

class CheckedResults {
 public:
  // Reads a results file. Throws InputError as read_results() does.
  CheckedResults(const BoundsFile& bounds, const std::string& path);
  CheckedResults(const BoundsFile& bounds, const Json& results, const std::string& path);

  const std::string& path() const { return path_; }
  // The members of the results besides their records.
  const Json& rest() const { return rest_; }
  const CheckedRecords& records(bool of_layers) const { return of_layers ? layers_ : cells_; }
  // Throws InputError if an element of `cells` or `layers` is not a record, or two are of one cell.
  void require_distinct() const;

 private:
  std::string path_;
  CheckedRecords cells_;
  CheckedRecords layers_;
  Json rest_;
};

// The part of a record that bounds look at: what identifies it, `derived`, and the numbers that
// they name. Anything that is not a record is left as it is.
Json needed_part(const BoundsFile& bounds, const Json& record);

}  // namespace kvbench
