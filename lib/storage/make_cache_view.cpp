#include "storage/make_cache_view.hpp"

#include "storage/stored_cache.hpp"

namespace kvbench {
namespace {

class UnquantisedCache final : public CacheView {
 public:
  UnquantisedCache(const Stream& stream, const Kernels& kernels)
      : stream_(stream), kernels_(kernels) {}

  void begin_block(const RowBlock& /*block*/, const std::vector<Index>& /*scored*/,
                   const LogitBlock* /*decoded*/) override {}
  void end_block() override {}
  void hold(const Sketch& /*sketch*/, Index /*row*/) override {}
  void read(const Sketch& /*sketch*/) override {}
  const KeptCounts& written() const override { return written_; }
  bool key_is_written(Index /*token*/) const override { return false; }
  bool value_is_written(Index /*token*/) const override { return false; }
  const Stream& held() const override { return stream_; }
  const Kernels& kernels() const override { return kernels_; }
  const HeldVectors* vectors() const override { return nullptr; }
  QueryRow attended(const QueryRow& query) override { return query; }
  StoredErrors errors(const Sketch& /*sketch*/) const override { return {}; }

 private:
  const Stream& stream_;
  const Kernels& kernels_;
  const KeptCounts written_;
};

}  // namespace

std::unique_ptr<CacheView> make_cache_view(const Stream& stream, const Kernels& kernels,
                                           const StoredStream* stored, bool keeps_all) {
  if (stored == nullptr) return std::make_unique<UnquantisedCache>(stream, kernels);
  return std::make_unique<StoredCache>(*stored, keeps_all);
}

}  // namespace kvbench
