// KV heads of one layer, or of several, whose attention differs in sharpness.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "system/error.hpp"

namespace kvbench::test {

struct LayerOfStreams {
  std::vector<std::unique_ptr<OwnedStream>> owned;
  std::vector<const Stream*> streams;

  // `heads` streams of each of `layers` layers; queries of head h in layer l are multiplied by
  // 1 + h + 2 l.
  explicit LayerOfStreams(const StreamSpec& spec, int heads, int layers = 1) {
    for (int l = 0; l < layers; ++l) {
      for (int h = 0; h < heads; ++h) {
        StreamSpec each = spec;
        each.seed = spec.seed + static_cast<std::uint64_t>(100 * l + h);
        each.query_size = spec.query_size * (1.0 + h + 2.0 * l);
        owned.push_back(make_stream(each));
        owned.back()->stream.id.layer = l;
        owned.back()->stream.id.kv_head = h;
        streams.push_back(&owned.back()->stream);
      }
    }
  }

  // The tokens of the prompt that each stream keeps at the first decoded row.
  std::vector<std::vector<Index>> kept(const std::string& id, Index prompt,
                                       const Given& given) const {
    std::vector<std::vector<Index>> out;
    for (const KeptSets& sets : kept_in_scope(id, streams, prompt, given)) {
      out.push_back(sets.front());
      if (out.back().empty() || out.back().back() != prompt) throw std::logic_error("own token");
      out.back().pop_back();
    }
    return out;
  }

  Derived derived(const std::string& id, Index prompt, const Given& given,
                  std::size_t place) const {
    const AlgorithmDescription& algorithm = algorithm_named(id);
    const Stepper stepper(*streams[place], prompt, algorithm, params_for(algorithm, given), 0, 0,
                          streams);
    return stepper.algorithm().derived();
  }

  // Why the cell of the first stream fails, "" where it does not.
  std::string failure(const std::string& id, Index prompt, const Given& given) const {
    try {
      derived(id, prompt, given, 0);
      return "";
    } catch (const CellError& error) {
      return error.what();
    }
  }
};

}  // namespace kvbench::test
