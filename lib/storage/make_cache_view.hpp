// Which view a cell's cache has.
#pragma once

#include <memory>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "storage/cache_view.hpp"
#include "storage/stored_stream.hpp"

namespace kvbench {

// The view of a cell's cache. `stored`: the stream as the cell's storage writes it, which must live
// as long; null: unquantised. `keeps_all`: the method never evicts.
std::unique_ptr<CacheView> make_cache_view(const Stream& stream, const Kernels& kernels,
                                           const StoredStream* stored, bool keeps_all);

}  // namespace kvbench
