// One of the two results that `kvbench compare` holds against each other, reduced to what it needs:
// cells are added one by one, and those that are many lie in a temporary file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "json/json.hpp"
#include "results/mean_interval.hpp"
#include "system/key_index.hpp"
#include "system/record_store.hpp"

namespace kvbench {

class ComparedResults {
 public:
  struct Cell {
    std::size_t setting = 0;
    std::size_t unit = 0;
    Index tokens = 0;  // tokens of its key
    std::string id;
    std::string seed;            // as JSON
    std::string trouble;         // "failed: why" if the cell is not ok, else empty
    std::vector<double> values;  // values of the metrics, NaN if null
  };

  // `metrics`: paths from a record. For messages, `path`: of the file; `member`: whose elements the
  // records are, "cells", or "layers" for those of whole layers.
  ComparedResults(const std::vector<std::string>& metrics, std::string path,
                  const char* member = "cells");

  // Throws InputError if `cell` is not a cell record, or its key without `device` was added before.
  void add(const Json& cell);

  const std::string& path() const { return path_; }
  const std::string& member() const { return member_; }
  std::size_t size() const { return keys_.size(); }
  // Hashes of the cells' keys without `device`, by their places 0, 1, ..
  const KeyIndex& keys() const { return keys_; }
  const std::vector<Json>& settings() const { return settings_; }  // algorithm, label, params
  const std::vector<Json>& units() const { return units_; }        // dump, sequence, layer, kv_head
  const std::vector<UnitNesting>& nesting() const { return nesting_; }  // nesting of the units

  // Whether a layer of a sequence was run on several numbers of its tokens: an axis of the sweep.
  bool tokens_vary() const { return tokens_vary_; }

  Json reference(const Cell& cell) const;  // as cell_reference()

  // The hashes of all values that cells have, by field of the key.
  const std::map<std::string, KeyIndex>& key_values() const { return key_values_; }

  // Reads cells by their places; threads do with a reader each.
  class Reader {
   public:
    explicit Reader(const ComparedResults& results)
        : metrics_(results.places_.size()), reader_(results.cells_) {}
    Cell at(std::size_t place);

   private:
    std::size_t metrics_;
    RecordStore::Reader reader_;
  };

 private:
  // The part of a cell that has one size for all; its values, id, seed and trouble follow.
  struct Fixed {
    std::uint32_t setting, unit, id_size, seed_size;
    Index tokens;
  };

  std::vector<Json::json_pointer> places_;
  std::string path_;
  std::string member_;
  KeyIndex keys_;
  RecordStore cells_;
  std::vector<Json> settings_;
  std::map<std::string, std::size_t> find_setting_;
  std::vector<Json> units_;
  std::vector<UnitNesting> nesting_;
  std::map<std::string, std::size_t> find_unit_;
  std::map<std::string, Index> find_text_;
  std::map<std::pair<Index, int>, Index> tokens_of_;  // by text and layer, of its first cell
  bool tokens_vary_ = false;
  std::map<std::string, KeyIndex> key_values_;
};

}  // namespace kvbench
