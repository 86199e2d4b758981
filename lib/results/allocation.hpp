// A storage for each layer, chosen from measured errors: `kvbench allocate`.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "system/index.hpp"

namespace kvbench {

struct AllocationRules {
  Index bytes = 0;    // bytes of all layers together
  std::string label;  // method, as labels have it before the storage; empty: the only one
  std::string metric = "errors.relative_frobenius_error";
};

// A layer's storage. Bytes: memory.peak_bytes + memory.shared_bytes of its KV heads, added up, as a
// mean over texts and seeds, rounded up. Loss: the metric's mean over seeds, then over KV heads and
// texts.
struct LayerChoice {
  int layer = 0;
  Json storage;  // as in a cell's key; "float" without one
  Index bytes = 0;
  double loss = 0.0;
};

struct Allocation {
  std::vector<LayerChoice> layers;   // ascending
  std::vector<LayerChoice> uniform;  // the best with one storage everywhere; empty: none fits
  Json sweep;                        // runs the choice

  static Index bytes(const std::vector<LayerChoice>& choices);
  static double loss(const std::vector<LayerChoice>& choices);  // mean over layers
};

// Collects the cells of one results file.
class AllocationCells {
 public:
  explicit AllocationCells(AllocationRules rules) : rules_(std::move(rules)) {}

  // A record of any status. A storage is a choice of a layer where all KV heads of its texts that
  // any storage was tried on have a number. A cell whose storage differs by layer is passed over.
  // Throws InputError where it is not a record. `path`, `index`: of its file and in it, for
  // messages.
  void add(const Json& cell, std::size_t index, const std::string& path);

  // The choice of least loss within the bytes, for these KV heads. `results`: the file's sweep and
  // list of calibrations. Throws InputError where the cells are of several methods or none, of
  // several numbers of tokens, or of layers with other texts, where a layer has no storage to
  // choose, or no choice fits.
  Allocation allocated(const Json& results, const std::string& path) const;

 private:
  struct Sum {
    double loss = 0.0;
    double bytes = 0.0;
    double seeds = 0.0;
  };
  using Units = std::map<std::string, Sum>;  // by dump, sequence and KV head
  struct Method {
    Json entry;                                          // algorithm, params, label
    std::map<int, std::map<std::string, Units>> layers;  // by the storage's text
    std::map<int, std::set<std::string>> asked;          // units with a cell of any status
    std::map<int, std::set<std::string>> texts;          // dump, sequence and tokens
    std::set<Index> tokens;
    std::set<int> kv_heads;
  };

  const Method& method(const std::string& path) const;

  AllocationRules rules_;
  std::map<std::string, Method> methods_;
};

}  // namespace kvbench
