// given: what another program kept, from a cache file. Each of its rows is kept from one decode row
// to another, with a token's key and value or its own, for all query heads or for one.
//
// Source: the file, which names its method (data/FORMAT.md has the format).
//   rows, weights and lifetimes -> file
// The rows are taken as they are: nothing is chosen here, and nothing is drawn.
#include <utility>

#include "algorithms/mechanisms/kept_rows_replay.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::given {
namespace {

struct Parameters {
  CacheParameter file;
};

class Given final : public KeptRowsReplay {
 public:
  Given(const KeptCache& cache, const CellContext& context)
      : KeptRowsReplay(cache.read(context.stream.id), context.stream, context.prompt),
        method_(cache.method) {}

  Derived derived() const override { return {{"method", method_}}; }

 private:
  std::string method_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "given";
  d.title = "what another program kept, from a cache file";
  d.source = "the file's own method";
  d.for_less_memory = "its cache file decides what given keeps; name a smaller one";
  d.parameters = {
      field("file", &Parameters::file, "a cache file; a cell's key has its fingerprint instead")
          .required()};
  d.derived = {{"method", "the method that the cache file names"}};
  d.misfit = [](const Parameters& p, const StreamId& id, const StreamShape& shape,
                Index prompt) -> std::optional<Misfit> {
    const KeptHead* head = p.file.content->find(id);
    if (head == nullptr) {
      return Misfit{"file", "the cache file has no rows of this head", Misfit::Kind::kSkip};
    }
    if (auto why = misfit(*head, shape, prompt)) {
      return Misfit{"file", std::move(*why), Misfit::Kind::kError};
    }
    return std::nullopt;
  };
  d.not_stored = [](const Parameters&) -> std::optional<std::string> {
    return "a cache file is replayed as it stands; write what a codec gives back into its key and "
           "value, and the bytes that it takes into key_bytes and value_bytes";
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Given>(*p.file.content, context);
  };
  return d;
}

}  // namespace kvbench::methods::given
