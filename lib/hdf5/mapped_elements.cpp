#include "hdf5/mapped_elements.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "hdf5/chunks.hpp"

namespace kvbench {
namespace {

// Their pairs are compared.
constexpr std::size_t kMostMappedParts = 1024;
constexpr std::size_t kLongestName = 4096;

// The text that `get` gives for part `index`.
template <class Get>
std::string name_of(hid_t properties, std::size_t index, Get get) {
  std::string name(kLongestName, '\0');
  const ssize_t size = get(properties, index, name.data(), name.size());
  if (size < 0) throw hdf5::Error(hdf5::last_error());
  if (static_cast<std::size_t>(size) >= name.size()) {
    throw hdf5::Error("takes elements from a name of more than 4095 bytes");
  }
  name.resize(static_cast<std::size_t>(size));
  return name;
}

// What is selected of a space of rank 3; nullopt: all of it.
std::optional<Block> selected_block(const hdf5::Handle& space) {
  const auto not_a_block = [] {
    return hdf5::Error(
        "maps elements that are not one block of a tensor's rows (three dimensions, without "
        "strides, "
        "of fixed size); map it block by block");
  };
  const H5S_sel_type kind = H5Sget_select_type(space.get());
  if (kind == H5S_SEL_ALL) return std::nullopt;
  if (kind != H5S_SEL_HYPERSLABS || H5Sget_simple_extent_ndims(space.get()) != 3 ||
      H5Sis_regular_hyperslab(space.get()) <= 0) {
    throw not_a_block();
  }
  Block out;
  Sizes stride{}, count{}, block{};
  hdf5::check(H5Sget_regular_hyperslab(space.get(), out.start.data(), stride.data(), count.data(),
                                       block.data()));
  for (std::size_t i = 0; i < 3; ++i) {
    const bool unlimited = count[i] == H5S_UNLIMITED || block[i] == H5S_UNLIMITED;
    if (unlimited || (count[i] != 1 && stride[i] != block[i]) ||
        __builtin_mul_overflow(count[i], block[i], &out.size[i])) {
      throw not_a_block();
    }
  }
  return out;
}

Sizes tensor_sizes(hid_t dataset, const std::string& name) {
  const hdf5::Handle space(H5Dget_space(dataset));
  const auto dims = hdf5::extent(space.get());
  if (dims.size() != 3) {
    throw hdf5::Error(fmt::format("takes elements from {}, which has {} dimensions and must have 3",
                                  name, dims.size()));
  }
  return {dims[0], dims[1], dims[2]};
}

void require_within(const Block& block, const Sizes& sizes, const std::string& name) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (block.size[i] > 0 && block.start[i] <= sizes[i] &&
        block.size[i] <= sizes[i] - block.start[i]) {
      continue;
    }
    throw hdf5::Error(fmt::format("maps the block [{}] at [{}] of {}, whose shape is [{}]",
                                  fmt::join(block.size, ", "), fmt::join(block.start, ", "), name,
                                  fmt::join(sizes, ", ")));
  }
}

// What two blocks share; nullopt without.
std::optional<Block> shared(const Block& a, const Block& b) {
  Block out;
  for (std::size_t i = 0; i < 3; ++i) {
    out.start[i] = std::max(a.start[i], b.start[i]);
    const hsize_t end = std::min(a.start[i] + a.size[i], b.start[i] + b.size[i]);
    if (end <= out.start[i]) return std::nullopt;
    out.size[i] = end - out.start[i];
  }
  return out;
}

// No overflow: shapes may claim anything.
double elements_of(const Sizes& sizes) {
  return static_cast<double>(sizes[0]) * static_cast<double>(sizes[1]) *
         static_cast<double>(sizes[2]);
}

// Throws unless the blocks make up all of a tensor, each element once.
void require_whole(const std::vector<Block>& blocks, const Sizes& sizes) {
  double mapped = 0.0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    mapped += elements_of(blocks[i].size);
    for (std::size_t j = 0; j < i; ++j) {
      if (shared(blocks[i], blocks[j])) {
        throw hdf5::Error("maps elements twice; map each to one source");
      }
    }
  }
  const double all = elements_of(sizes);
  if (mapped == all) return;
  throw hdf5::Error(
      fmt::format("maps {:.0f} of its {:.0f} elements; map all of them", mapped, all));
}

}  // namespace

MappedElements::MappedElements(hid_t dataset, SourceFiles& files) : type_(H5Dget_type(dataset)) {
  const hdf5::Handle properties(H5Dget_create_plist(dataset));
  std::size_t count = 0;
  hdf5::check(H5Pget_virtual_count(properties.get(), &count));
  if (count > kMostMappedParts) {
    throw hdf5::Error(
        fmt::format("is mapped in {} parts; {} are the most", count, kMostMappedParts));
  }
  const Sizes sizes = tensor_sizes(dataset, "itself");
  std::vector<Block> targets;
  for (std::size_t i = 0; i < count; ++i) {
    const auto selected = [&](auto space_of) {
      return selected_block(hdf5::Handle(space_of(properties.get(), i)));
    };
    const Block target = selected(H5Pget_virtual_vspace).value_or(Block{{}, sizes});
    require_within(target, sizes, "itself");
    const std::string file = name_of(properties.get(), i, H5Pget_virtual_filename);
    const std::string name = name_of(properties.get(), i, H5Pget_virtual_dsetname);
    const StoredElements& from = source(file, name, files);
    const std::string what = fmt::format("{}: {}", file, name);
    const Sizes of_source = from.size();
    const Block block = selected(H5Pget_virtual_srcspace).value_or(Block{{}, of_source});
    require_within(block, of_source, what);
    if (block.size != target.size) {
      throw hdf5::Error(fmt::format("maps the block [{}] of {} to one of [{}]",
                                    fmt::join(block.size, ", "), what,
                                    fmt::join(target.size, ", ")));
    }
    targets.push_back(target);
    parts_.push_back({target, block.start, &from});
  }
  require_whole(targets, sizes);
}

const StoredElements& MappedElements::source(const std::string& file, const std::string& name,
                                             SourceFiles& files) {
  const auto found = sources_.find({file, name});
  if (found != sources_.end()) return found->second;
  const std::string what = fmt::format("{}: {}", file, name);
  const auto fail = [&](const std::string& why) {
    return hdf5::Error(fmt::format("takes elements from {}, which {}", what, why));
  };
  const hid_t opened = files.open(file);
  try {
    if (hdf5::kind_of(opened, name) != hdf5::Kind::kDataset) throw fail("is not a dataset");
    hdf5::Handle dataset = open_for_reading(opened, name, hdf5::Elements::kOwnOrMapped);
    if (hdf5::is_virtual(dataset.get())) throw fail("is itself a virtual dataset");
    const hdf5::Handle type(H5Dget_type(dataset.get()));
    if (H5Tequal(type.get(), type_.get()) <= 0) {
      throw fail("has elements of another type; make both of one type");
    }
    tensor_sizes(dataset.get(), what);
    if (const auto why = unreadable_storage(dataset.get())) throw fail(*why);
    return sources_.emplace(std::pair(file, name), StoredElements(std::move(dataset)))
        .first->second;
  } catch (const hdf5::OutsideError& error) {
    throw hdf5::OutsideError(fail(error.what()).what());
  }
}

std::uint64_t MappedElements::chunk_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, dataset] : sources_) bytes += kvbench::chunk_bytes(dataset.id());
  return bytes;
}

void MappedElements::read(const Block& wanted, std::byte* out) const {
  hsize_t elements = 0;
  for (const Part& part : parts_) {
    const auto block = shared(part.target, wanted);
    if (!block) continue;
    Block from{{}, block->size};
    Destination to{out, wanted.size, {}};
    for (std::size_t i = 0; i < from.start.size(); ++i) {
      from.start[i] = part.start[i] + (block->start[i] - part.target.start[i]);
      to.start[i] = block->start[i] - wanted.start[i];
    }
    part.source->read(from, to);
    elements += block->elements();
  }
  if (elements != wanted.elements()) throw hdf5::Error("elements without a source");
}

}  // namespace kvbench
