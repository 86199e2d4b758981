// Results made by hand: as few keys as a check looks at.
#pragma once

#include <string>
#include <vector>

#include "check/check.hpp"
#include "system/error.hpp"

namespace kvbench::test {

struct MadeCell {
  std::string algorithm = "uniform";
  int layer = 0;
  int kv_head = 0;
  Json seed = 0;
  Json params = {{"T", 1}};
  Json error = 0.1;  // errors.relative_l2.mean and errors.epsilon_spectral.last
  std::string status = "ok";
  bool vacuous = false;
  std::string dump = "f1";
  Json tokens_peak = 100;
  std::string device = "cpu";
  Json memory_fraction = 0.25;
  double exact_bytes = 1000.0;
  Json zero = nullptr;        // the same metrics of the answer 0; null: no trivial answers
  Json mean_value = nullptr;  // metrics of the mean of the visible values

  Json json() const {
    Json cell;
    cell["id"] = "id-of-" + algorithm;
    cell["status"] = status;
    if (status != "ok") cell["reason"] = "because";
    cell["key"] = {{"dump", dump},       {"sequence", "s"},        {"layer", layer},
                   {"kv_head", kv_head}, {"algorithm", algorithm}, {"params", params},
                   {"seed", seed},       {"device", device}};
    cell["label"] = algorithm;
    cell["derived"] = {{"vacuous", vacuous}};
    cell["errors"] = nullptr;
    cell["memory"] = nullptr;
    if (status == "ok") {
      cell["errors"] = {{"relative_l2", {{"mean", error}}},
                        {"epsilon_spectral", {{"last", error}}}};
      if (!zero.is_null()) {
        cell["trivial"] = {{"zero", {{"epsilon_spectral", {{"last", zero}}}}},
                           {"mean_value", {{"epsilon_spectral", {{"last", mean_value}}}}}};
      }
      cell["memory"] = {{"tokens_peak", tokens_peak},
                        {"exact_bytes", exact_bytes},
                        {"fraction", memory_fraction}};
    }
    return cell;
  }
};

inline Json made_results(const std::vector<MadeCell>& cells) {
  Json results = {{"schema_version", "1.0.0"},
                  {"kind", "kvbench.results"},
                  {"status", "complete"},
                  {"dumps", {{{"path", "/dumps/a.h5"}, {"fingerprint", "f1"}}}},
                  {"cells", Json::array()}};
  for (const MadeCell& cell : cells) results["cells"].push_back(cell.json());
  return results;
}

// A bounds file of these bounds, in the folder of `path`.
inline BoundsFile made_bounds(const std::string& bounds, const std::string& path = "b.json") {
  return parse_bounds(R"({"schema_version": 1, "bounds": [)" + bounds + "]}", path);
}

// The outcome of one bound.
inline BoundOutcome outcome_of(const std::string& bound, const std::vector<MadeCell>& cells,
                               const std::string& path = "b.json") {
  return check_bounds(made_bounds(bound, path), made_results(cells), "r.json").bounds.at(0);
}

template <class Action>
std::vector<std::string> messages_of(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.messages();
  }
  return {};
}

}  // namespace kvbench::test
