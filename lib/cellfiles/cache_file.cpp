#include "cellfiles/cache_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <new>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cellfiles/cache_head.hpp"
#include "cellfiles/indexed_groups.hpp"
#include "hdf5/attributes.hpp"
#include "hdf5/first_reading.hpp"
#include "hdf5/hdf5.hpp"
#include "hdf5/open_file.hpp"
#include "hdf5/structure_errors.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

constexpr const char* kFormat = "kvbench-cache";
// Visits the groups below `parent`/`name`, each named by an index, and `parent` has no other
// members.
template <class Visit>
void each_indexed_below(ErrorList& errors, hid_t parent, const std::string& location,
                        const std::string& name, const Step& step, const Visit& visit) {
  const std::string place = join(location, name);
  check_names(errors, parent, location, {}, {name});
  if (!is_group(errors, parent, place, name)) return;
  each_indexed(errors, hdf5::open_group(parent, name).get(), place, step, visit);
}

constexpr std::array<const char*, 4> kSettingAttributes = {"method", "params", "seed", "dump"};

std::vector<std::string> root_attributes() {
  std::vector<std::string> names = {"format", "format_version", "producer"};
  names.insert(names.end(), kSettingAttributes.begin(), kSettingAttributes.end());
  return names;
}

std::string setting_part(const char* name, const std::string& text) {
  return fmt::format("{}={}:{}\n", name, text.size(), text);
}

void check_root(ErrorList& errors, hid_t root, KeptCache& cache) {
  Attributes attributes(errors, root, "/");
  check_format(errors, attributes, kFormat);
  check_names(errors, root, "/", root_attributes(), {"sequences"});
  const auto method = attributes.text("method");
  cache.method = method.value_or("");
  if (attributes.has("dump")) cache.dump = attributes.text("dump").value_or("");
  const bool plain = std::none_of(cache.method.begin(), cache.method.end(), [](char c) {
    return c == '/' || static_cast<unsigned char>(c) < 0x20;
  });
  for (const char* name : kSettingAttributes) {
    if (!hdf5::has_attribute(root, name)) continue;
    cache.setting += setting_part(name, hdf5::attribute_text(root, name));
  }
  if (method && (method->empty() || !plain)) {
    add(errors, "/", "attribute method must be a name without \"/\" or control characters");
  }
}

// All but the elements of datasets.
void read_structure(ErrorList& errors, hid_t file, const Step& step, KeptCache& cache) {
  const hdf5::Handle root = hdf5::open_group(file, "/");
  check_root(errors, root.get(), cache);
  if (!is_group(errors, root.get(), "/sequences", "sequences")) return;
  const hdf5::Handle sequences = hdf5::open_group(root.get(), "sequences");
  hdf5::limit_metadata(sequences.get());
  refuse_unknown(errors, "/sequences", "attribute", hdf5::attribute_names(sequences.get()), {});
  for (const std::string& name : hdf5::children(sequences.get())) {
    const std::string place = "/sequences/" + name;
    step();
    if (errors.count() > kEnoughErrors) return;
    if (!is_group(errors, sequences.get(), place, name)) continue;
    const hdf5::Handle sequence = hdf5::open_group(sequences.get(), name);
    each_indexed_below(
        errors, sequence.get(), place, "layers", step,
        [&](int layer, const hdf5::Handle& group, const std::string& at) {
          each_indexed_below(
              errors, group.get(), at, "heads", step,
              [&](int head, const hdf5::Handle& of_head, const std::string& head_place) {
                KeptHead found = check_cache_head(errors, of_head.get(), head_place);
                found.sequence = name;
                found.layer = layer;
                found.kv_head = head;
                cache.heads.push_back(std::move(found));
              });
        });
  }
  if (cache.heads.empty() && errors.none()) add(errors, "/sequences", "has no rows of any head");
  std::sort(cache.heads.begin(), cache.heads.end(), [](const KeptHead& a, const KeptHead& b) {
    return std::tie(a.sequence, a.layer, a.kv_head) < std::tie(b.sequence, b.layer, b.kv_head);
  });
}

KeptCache checked_structure(const std::string& path, hid_t file, const Step& step) {
  ErrorList errors(path);
  KeptCache cache;
  cache.path = path;
  try {
    read_structure(errors, file, step, cache);
  } catch (const hdf5::Error& error) {
    add(errors, "/", "{}", unreadable_structure(error));
  }
  errors.throw_if_any();
  return cache;
}

// The open file behind KeptCache::read.
class CacheReader {
 public:
  explicit CacheReader(const std::string& path) : path_(path), lock_(lock_dump_file(path)) {}
  ~CacheReader() {
    const hdf5::Session session;
    file_ = hdf5::Handle();
  }
  CacheReader(const CacheReader&) = delete;
  CacheReader& operator=(const CacheReader&) = delete;

  KeptCache open(const DumpOptions& options, CacheRows rows) {
    if (options.first_in_child) {
      read_in_child(path_, [&](const Step& step) {
        const hdf5::Handle file = open_dump_file(path_);
        checked_structure(path_, file.get(), step);
        return std::vector<std::string>();
      });
    }
    const hdf5::Session session;
    file_ = open_dump_file(path_);
    opened_ = state_of(file_, path_);
    KeptCache cache = checked_structure(path_, file_.get(), [] {});
    if (rows == CacheRows::kChecked) read_all(cache);
    return cache;
  }

  KeptRows read(const StreamId& id) const {
    const hdf5::Session session;
    ErrorList errors(path_);
    KeptRows kept = read_head(errors, id);
    if (state_of(file_, path_) != opened_) {
      errors.add(path_ + ": was modified while open; restore it and rerun");
    }
    if (!errors.none()) throw CellError(errors.messages().front());
    return kept;
  }

 private:
  // Every row once: what is wrong with them, and the fingerprint of all.
  void read_all(KeptCache& cache) const {
    ErrorList errors(path_);
    Hash128 hash;
    hash.add(cache.setting);
    for (KeptHead& head : cache.heads) {
      if (errors.count() > kEnoughErrors) break;
      const KeptRows kept = read_head(errors, {head.sequence, head.layer, head.kv_head});
      complete(head, kept);
      add_to_hash(hash, head, kept);
    }
    errors.throw_if_any();
    cache.fingerprint = hash.hex();
  }

  KeptRows read_head(ErrorList& errors, const StreamId& id) const {
    const std::string location = cache_head_path(id);
    try {
      const hdf5::Handle group = hdf5::open_group(file_.get(), location);
      return read_kept_rows(errors, group.get(), location);
    } catch (const hdf5::Error& error) {
      add(errors, location, "cannot be read ({}); the file is truncated or damaged", error.what());
    } catch (const std::bad_alloc&) {
      add(errors, location, "does not fit in memory");
    }
    return {};
  }

  const std::string path_;
  UniqueFd lock_;
  hdf5::Handle file_;
  FileState opened_;
};

IoError unwritable(const std::string& path, const std::string& why) {
  return IoError(
      fmt::format("{}: cannot be written ({}); check the folder and its free space", path, why));
}

}  // namespace

bool is_cache_file(const std::string& path) {
  const UniqueFd lock = lock_dump_file(path);
  const auto read = [&] {
    const hdf5::Handle file = open_dump_file(path);
    try {
      const hdf5::Handle root = hdf5::open_group(file.get(), "/");
      return hdf5::has_attribute(root.get(), "format") &&
             hdf5::read_string(root.get(), "format") == kFormat;
    } catch (const hdf5::Error&) {
      return false;
    }
  };
  read_in_child(path, [&](const Step&) {
    read();
    return std::vector<std::string>();
  });
  const hdf5::Session session;
  return read();
}

std::shared_ptr<const KeptCache> open_cache(const std::string& path, const DumpOptions& options,
                                            CacheRows rows) {
  const auto reader = std::make_shared<CacheReader>(path);
  auto cache = std::make_shared<KeptCache>(reader->open(options, rows));
  cache->read = [reader](const StreamId& id) { return reader->read(id); };
  return cache;
}

std::string CacheHeader::setting() const {
  std::string out = setting_part("method", method);
  if (!params.empty()) out += setting_part("params", params);
  if (seed) out += setting_part("seed", std::to_string(*seed));
  if (!dump.empty()) out += setting_part("dump", dump);
  return out;
}

struct CacheWriter::Impl {
  std::string path;
  std::string temporary;
  hdf5::Handle file;
  bool finished = false;
};

CacheWriter::CacheWriter(const std::string& path, const CacheHeader& header)
    : impl_(std::make_unique<Impl>()) {
  const hdf5::Session session;
  impl_->path = path;
  impl_->temporary = temporary_name(path);
  try {
    impl_->file = hdf5::create_file(impl_->temporary);
    const hdf5::Handle root = hdf5::open_group(impl_->file.get(), "/");
    hdf5::write_attribute(root.get(), "format", std::string(kFormat));
    hdf5::write_attribute(root.get(), "format_version", std::int64_t{1});
    hdf5::write_attribute(root.get(), "method", header.method);
    if (!header.producer.empty()) hdf5::write_attribute(root.get(), "producer", header.producer);
    if (!header.params.empty()) hdf5::write_attribute(root.get(), "params", header.params);
    if (header.seed) hdf5::write_attribute(root.get(), "seed", std::int64_t{*header.seed});
    if (!header.dump.empty()) hdf5::write_attribute(root.get(), "dump", header.dump);
    hdf5::create_group(root.get(), "sequences");
  } catch (const hdf5::Error& error) {
    std::remove(impl_->temporary.c_str());
    throw unwritable(path, error.what());
  }
}

CacheWriter::~CacheWriter() {
  const hdf5::Session session;
  impl_->file = hdf5::Handle();
  if (!impl_->finished) std::remove(impl_->temporary.c_str());
}

void CacheWriter::add(const StreamId& id, const StreamShape& shape, const KeptRows& kept,
                      const std::string& cell_id) {
  const hdf5::Session session;
  try {
    hdf5::Handle group = hdf5::open_group(impl_->file.get(), "/sequences");
    for (const std::string& name : {id.sequence, std::string("layers"), std::to_string(id.layer),
                                    std::string("heads"), std::to_string(id.kv_head)}) {
      group = hdf5::has_link(group.get(), name) ? hdf5::open_group(group.get(), name)
                                                : hdf5::create_group(group.get(), name);
    }
    write_cache_head(group.get(), shape, kept);
    if (!cell_id.empty()) hdf5::write_attribute(group.get(), "cell", cell_id);
  } catch (const hdf5::Error& error) {
    throw unwritable(impl_->path, error.what());
  }
}

void CacheWriter::close() {
  if (!impl_->file) return;
  const hdf5::Session session;
  try {
    hdf5::check(H5Fflush(impl_->file.get(), H5F_SCOPE_GLOBAL));
    impl_->file = hdf5::Handle();
  } catch (const hdf5::Error& error) {
    throw unwritable(impl_->path, error.what());
  }
}

void CacheWriter::finish() {
  close();
  replace_file(impl_->temporary, impl_->path);
  impl_->finished = true;
}

}  // namespace kvbench
