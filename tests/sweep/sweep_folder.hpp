// A folder with a sweep file's dumps in it, and tables of a few made-up algorithms, so that the
// tests of the grammar do not change when a real algorithm does.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "parameters/parameter_table.hpp"
#include "sweep/plan.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"

namespace kvbench::test {

inline const std::vector<AlgorithmDescription>& made_up_algorithms() {
  using Kind = Parameter::Kind;
  static const std::vector<AlgorithmDescription> algorithms = [] {
    const auto parameter = [](const std::string& name, Kind kind,
                              const std::optional<Value>& default_value = {}, double minimum = 0.0,
                              double maximum = 1e15, bool open = false,
                              const std::vector<std::string>& choices = {}) {
      return Parameter{name, kind, "", default_value, minimum, maximum, open, choices};
    };
    const auto always = [](const Params&) { return true; };
    std::vector<AlgorithmDescription> list(5);
    list[0].id = "exact";
    list[0].answers_prompt_rows = true;
    list[1].id = "window";
    list[1].answers_prompt_rows = true;
    list[1].parameters = {parameter("budget", Kind::kTokens, {}, 1)};
    list[1].skip_reason = [](const Params& params, const StreamShape&,
                             Index prompt) -> std::optional<std::string> {
      const auto budget = TokenCount::from_value(params.at("budget"));
      if (budget.of(prompt) > 0) return std::nullopt;
      return "a budget of 0 tokens";
    };
    list[2].id = "snapkv";
    list[2].parameters = {
        parameter("budget", Kind::kTokens, {}, 1),
        parameter("window", Kind::kInteger, std::int64_t{32}, 1, 4096),
        parameter("kernel", Kind::kInteger, std::int64_t{7}, 1, 4095),
        parameter("pool", Kind::kChoice, std::string("max"), 0, 0, false, {"max", "avg"})};
    list[2].validate =
        [](const Params& params) -> std::optional<std::pair<std::string, std::string>> {
      const auto kernel = std::get<std::int64_t>(params.at("kernel"));
      if (kernel % 2 == 1) return std::nullopt;
      return std::pair<std::string, std::string>("kernel",
                                                 "must be odd, is " + std::to_string(kernel));
    };
    list[3].id = "subgen";
    list[3].aliases = {"clustergen"};
    list[3].parameters = {
        parameter("delta", Kind::kReal, {}, 0.0),
        parameter("delta_quantile", Kind::kReal, {}, 0.0, 1.0),
        parameter("t", Kind::kInteger, {}, 1),
        parameter("s", Kind::kInteger, {}, 1),
        parameter("epsilon", Kind::kReal, {}, 0.0, 1.0, true),
        parameter("sampling", Kind::kChoice, std::string("v2"), 0, 0, false,
                  {"v2", "v1", "k2", "uniform"}),
        parameter("c", Kind::kReal, std::string("theory"), 0.0, 1e15, true, {"theory"})};
    list[3].exactly_one_of = {{{{"delta"}, {"delta_quantile"}}}, {{{"t", "s"}, {"epsilon"}}}};
    list[3].randomised = always;
    list[4].id = "uniform";
    list[4].parameters = {parameter("T", Kind::kInteger, {}, 0, 60),
                          parameter("budget", Kind::kTokens, {}, 1),
                          parameter("sinks", Kind::kTokens, std::int64_t{256}),
                          parameter("replacement", Kind::kFlag, false)};
    list[4].exactly_one_of = {{{{"T"}, {"budget"}}}};
    list[4].randomised = always;
    return list;
  }();
  return algorithms;
}

class SweepFolder {
 public:
  SweepFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kvbench-sweep-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = std::filesystem::canonical(name);
    for (const char* dump : {"a.h5", "b.h5", "c.h5"}) std::ofstream(path_ / dump) << dump;
  }
  ~SweepFolder() { std::filesystem::remove_all(path_); }
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }

  SweepConfig parse(const std::string& text, const std::vector<std::string>& sets = {}) const {
    return parse_sweep(text, file("quick.json"), sets, made_up_algorithms());
  }

  // The messages of a sweep that must be refused, the folder's own path taken out of them.
  std::vector<std::string> errors(const std::string& text,
                                  const std::vector<std::string>& sets = {}) const {
    return messages([&] { parse(text, sets); });
  }

  template <class Action>
  std::vector<std::string> messages(const Action& action) const {
    try {
      action();
    } catch (const InputError& error) {
      std::vector<std::string> result;
      for (std::string message : error.messages()) {
        const std::string own = path_.string() + "/";
        for (std::size_t at; (at = message.find(own)) != std::string::npos;) {
          message.erase(at, own.size());
        }
        result.push_back(std::move(message));
      }
      return result;
    }
    return {};
  }

 private:
  std::filesystem::path path_;
};

// A whole sweep file around its algorithms, with further keys ("\"seeds\": [1]").
inline std::string sweep(const std::string& algorithms, const std::string& more = "") {
  return R"({"schema_version": 1, "name": "quick", "dumps": ["a.h5"], )" +
         (more.empty() ? "" : more + ", ") + R"("algorithms": [)" + algorithms + "]}";
}

// One entry of `algorithms`.
inline std::string entry(const std::string& algorithm, const std::string& params) {
  return R"({"algorithm": ")" + algorithm + R"(", "params": {)" + params + "}}";
}

// A dump of one sequence "0" of `tokens` tokens with these layers, each of `kv_heads` KV heads.
inline PlannedDump planned_dump(const std::string& name, Index tokens,
                                const std::vector<int>& layers, int kv_heads,
                                Index query_rows = 0) {
  PlannedDump dump;
  dump.path = "/dumps/" + name + ".h5";
  dump.fingerprint = "fingerprint-of-" + name;
  dump.model = "made-up";
  dump.n_layers = 30;
  PlannedSequence sequence;
  sequence.name = "0";
  for (const int layer : layers) {
    PlannedLayer planned;
    planned.index = layer;
    planned.kv_heads = kv_heads;
    planned.shape.tokens = tokens;
    planned.shape.d = 64;
    planned.shape.dv = 64;
    planned.shape.heads_per_kv = 3;
    planned.shape.first_query = query_rows > 0 ? tokens - query_rows : 0;
    planned.shape.n_layers = 30;
    sequence.layers.push_back(planned);
  }
  dump.sequences.push_back(sequence);
  return dump;
}

}  // namespace kvbench::test
