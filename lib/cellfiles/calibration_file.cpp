#include "cellfiles/calibration_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "cellfiles/indexed_groups.hpp"
#include "hdf5/attributes.hpp"
#include "hdf5/first_reading.hpp"
#include "hdf5/open_file.hpp"
#include "hdf5/stored_elements.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/hash.hpp"
#include "system/memory_limit.hpp"

namespace kvbench {
namespace {

constexpr const char* kCalibrationFormat = "kvbench-calibration";
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxHeadNumber = 1024;
constexpr const char* kFrequencies = "inv_freq";
constexpr const char* kMarks = "marks";

using Dims = std::vector<std::uint64_t>;

Dims dims_of(hid_t dataset) { return hdf5::extent(hdf5::Handle(H5Dget_space(dataset)).get()); }

// A dataset of at most three dimensions that memory has room for, of numbers of this class.
hdf5::Handle open_array(ErrorList& errors, hid_t group, const std::string& place,
                        const std::string& name, H5T_class_t wanted) {
  const std::string at = join(place, name);
  if (!hdf5::has_link(group, name)) {
    add(errors, at, "dataset is missing; calibrate again");
    return {};
  }
  hdf5::Handle dataset = small_dataset_of(errors, group, at, name);
  if (!dataset) return dataset;
  double bytes = 8.0;
  for (const auto size : dims_of(dataset.get())) bytes *= size;
  if (H5Tget_class(hdf5::Handle(H5Dget_type(dataset.get())).get()) != wanted) {
    add(errors, at, "must be {}; calibrate again", wanted == H5T_FLOAT ? "float64" : "integers");
  } else if (dims_of(dataset.get()).size() > 3) {
    add(errors, at, "has more than three dimensions");
  } else if (bytes > usable_memory()) {
    add(errors, at, "needs {:.3g} GiB of memory and there are {:.3g} GiB", bytes / 0x1p30,
        usable_memory() / 0x1p30);
  } else {
    return dataset;
  }
  return {};
}

// Its elements, which must be finite.
std::vector<double> read_array(ErrorList& errors, hid_t group, const std::string& place,
                               const std::string& name) {
  hdf5::Handle dataset = open_array(errors, group, place, name, H5T_FLOAT);
  if (!dataset) return {};
  std::vector<double> values = all_doubles(std::move(dataset));
  if (!std::ranges::all_of(values, [](double x) { return std::isfinite(x); })) {
    add(errors, join(place, name), "has NaN or infinity; every number must be finite");
  }
  return values;
}

std::string head_place(int layer, int kv_head) {
  return fmt::format("/layers/{}/heads/{}", layer, kv_head);
}

// Reads a whole file into a Calibration, and hashes it.
class Reading {
 public:
  Reading(ErrorList& errors, hid_t file, const Step& step)
      : errors_(errors), root_(hdf5::open_group(file, "/")), step_(step) {}

  void read(Calibration& out) {
    read_root(out);
    if (is_group(errors_, root_.get(), "/texts", "texts")) read_texts(out);
    if (is_group(errors_, root_.get(), "/layers", "layers")) read_layers(out);
    out.fingerprint = hash_.hex();
  }

 private:
  void read_root(Calibration& out) {
    Attributes attributes(errors_, root_.get(), "/");
    check_format(errors_, attributes, kCalibrationFormat);
    check_names(errors_, root_.get(), "/",
                {"format", "format_version", "producer", "method", "params", "model", "n_layers"},
                {"texts", "layers"});
    out.method = attributes.text("method").value_or("");
    out.params = attributes.text("params").value_or("");
    out.model = attributes.text("model").value_or("");
    out.n_layers = static_cast<int>(attributes.integer("n_layers", 1, kMaxCount).value_or(0));
    for (const std::string* text : {&out.method, &out.params, &out.model}) add_to_hash(*text);
    add_to_hash(std::to_string(out.n_layers));
  }

  void read_texts(Calibration& out) {
    std::vector<std::pair<int, CalibratedText>> texts;
    const hdf5::Handle group = hdf5::open_group(root_.get(), "texts");
    each_indexed(errors_, group.get(), "/texts", step_,
                 [&](int index, const hdf5::Handle& text, const std::string& at) {
                   check_names(errors_, text.get(), at, {"dump", "sequence", "tokens"}, {});
                   Attributes attributes(errors_, text.get(), at);
                   texts.emplace_back(
                       index,
                       CalibratedText{attributes.text("dump").value_or(""),
                                      attributes.text("sequence").value_or(""),
                                      attributes.integer("tokens", 1, kMaxCount).value_or(1)});
                 });
    std::ranges::sort(texts, {}, [](const auto& text) { return text.first; });
    for (auto& [index, text] : texts) {
      if (index != static_cast<int>(out.texts.size())) {
        add(errors_, "/texts", "must be numbered 0, 1, ..; number them so");
      }
      for (const std::string* part : {&text.dump, &text.sequence}) add_to_hash(*part);
      add_to_hash(std::to_string(text.tokens));
      out.texts.push_back(std::move(text));
    }
    if (out.texts.empty()) add(errors_, "/texts", "has no text; calibrate again");
  }

  void read_layers(Calibration& out) {
    const hdf5::Handle group = hdf5::open_group(root_.get(), "layers");
    std::vector<int> indices;
    each_indexed(
        errors_, group.get(), "/layers", step_,
        [&](int index, const hdf5::Handle&, const std::string&) { indices.push_back(index); });
    std::ranges::sort(indices);
    for (const int index : indices) {
      if (errors_.count() > kEnoughErrors) return;
      out.layers.push_back(read_layer(group.get(), index, out.texts));
    }
    if (indices.empty()) add(errors_, "/layers", "has no layer; calibrate again");
  }

  CalibratedLayer read_layer(hid_t layers, int index, const std::vector<CalibratedText>& texts) {
    const std::string place = fmt::format("/layers/{}", index);
    const hdf5::Handle group = hdf5::open_group(layers, std::to_string(index));
    check_names(errors_, group.get(), place, {"kv_heads", "heads_per_kv", "d", "interleaved"},
                {kFrequencies, "heads"});
    Attributes attributes(errors_, group.get(), place);
    CalibratedLayer layer;
    layer.index = index;
    layer.kv_heads =
        static_cast<int>(attributes.integer("kv_heads", 1, kMaxHeadNumber).value_or(0));
    layer.heads_per_kv =
        static_cast<int>(attributes.integer("heads_per_kv", 1, kMaxHeadNumber).value_or(0));
    layer.d = attributes.integer("d", 1, kMaxCount).value_or(0);
    add_to_hash(fmt::format("{} {} {} {}", index, layer.kv_heads, layer.heads_per_kv, layer.d));
    if (hdf5::has_link(group.get(), kFrequencies)) {
      Rope rope;
      rope.interleaved = attributes.integer("interleaved", 0, 1) == 1;
      rope.inv_freq = read_array(errors_, group.get(), place, kFrequencies);
      add_to_hash(fmt::format("rope {}", rope.interleaved));
      add_to_hash(rope.inv_freq);
      layer.rope = std::make_shared<const Rope>(std::move(rope));
    }
    if (!is_group(errors_, group.get(), join(place, "heads"), "heads")) return layer;
    const hdf5::Handle heads = hdf5::open_group(group.get(), "heads");
    for (int h = 0; h < layer.kv_heads; ++h) {
      step_();
      const std::string name = std::to_string(h);
      if (!is_group(errors_, heads.get(), head_place(index, h), name)) continue;
      layer.marks.push_back(
          read_head(hdf5::open_group(heads.get(), name).get(), head_place(index, h), texts));
    }
    return layer;
  }

  std::vector<KeyMarks> read_head(hid_t group, const std::string& place,
                                  const std::vector<CalibratedText>& texts) {
    refuse_unknown(errors_, place, "attribute", hdf5::attribute_names(group), {});
    for (const std::string& name : hdf5::children(group)) {
      if (name == kMarks) continue;
      step_();
      const std::vector<double> values = read_array(errors_, group, place, name);
      add_to_hash(name);
      if (!errors_.none()) continue;
      add_to_hash(
          fmt::format("{}", fmt::join(dims_of(hdf5::open_dataset(group, name).get()), " ")));
      add_to_hash(values);
    }
    return read_marks(group, place, texts);
  }

  std::vector<KeyMarks> read_marks(hid_t group, const std::string& place,
                                   const std::vector<CalibratedText>& texts) {
    hdf5::Handle dataset = open_array(errors_, group, place, kMarks, H5T_INTEGER);
    if (!dataset) return {};
    const Dims dims = dims_of(dataset.get());
    const std::vector<std::int64_t> all = all_integers(std::move(dataset));
    add_to_hash(all);
    std::vector<KeyMarks> marks;
    for (std::size_t text = 0; text < texts.size(); ++text) {
      const auto count =
          static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(texts[text].tokens)));
      if (dims.size() != 2 || dims[0] != texts.size() || dims[1] < count) {
        add(errors_, join(place, kMarks), "must be [texts, {} or more]; calibrate again", count);
        return {};
      }
      const auto first = all.begin() + (text * dims[1]);
      marks.emplace_back(first, first + count);
    }
    return marks;
  }

  void add_to_hash(const std::string& text) {
    hash_.add(fmt::format("{}:{}\n", text.size(), text));
  }
  template <class T>
  void add_to_hash(const std::vector<T>& values) {
    hash_.add(values.data(), values.size() * sizeof(T));
  }

  ErrorList& errors_;
  hdf5::Handle root_;
  const Step& step_;
  Hash128 hash_;
};

Calibration read_calibration(const std::string& path, hid_t file, const Step& step) {
  ErrorList errors(path);
  Calibration out;
  out.path = path;
  try {
    Reading(errors, file, step).read(out);
  } catch (const hdf5::Error& error) {
    add(errors, "/", "{}", unreadable_structure(error));
  }
  errors.throw_if_any();
  return out;
}

// The open file behind Calibration::read.
class CalibrationReader {
 public:
  explicit CalibrationReader(const std::string& path) : path_(path), lock_(lock_dump_file(path)) {}
  ~CalibrationReader() {
    const hdf5::Session session;
    file_ = hdf5::Handle();
  }
  CalibrationReader(const CalibrationReader&) = delete;
  CalibrationReader& operator=(const CalibrationReader&) = delete;

  Calibration open(const DumpOptions& options) {
    if (options.first_in_child) {
      read_in_child(path_, [&](const Step& step) {
        const hdf5::Handle file = open_dump_file(path_);
        read_calibration(path_, file.get(), step);
        return std::vector<std::string>();
      });
    }
    const hdf5::Session session;
    file_ = open_dump_file(path_);
    opened_ = state_of(file_, path_);
    return read_calibration(path_, file_.get(), [] {});
  }

  std::vector<double> read(const StreamId& id, const std::string& name,
                           const std::vector<Index>& shape) const {
    const hdf5::Session session;
    const std::string place = head_place(id.layer, id.kv_head);
    const auto refuse = [&](const std::string& what) {
      return CellError(fmt::format("{}: {}: {}", path_, join(place, name), what));
    };
    if (state_of(file_, path_) != opened_) throw refuse("was modified while open; rerun");
    const hdf5::Handle group = hdf5::open_group(file_.get(), place);
    if (!hdf5::has_link(group.get(), name)) throw refuse("is missing; calibrate again");
    hdf5::Handle dataset = hdf5::open_dataset(group.get(), name);
    const Dims found = dims_of(dataset.get());
    if (!std::ranges::equal(found, shape, {}, {}, [](Index n) { return Dims::value_type(n); })) {
      throw refuse(fmt::format("has shape [{}], expected [{}]; calibrate again",
                               fmt::join(found, ", "), fmt::join(shape, ", ")));
    }
    return all_doubles(std::move(dataset));
  }

 private:
  const std::string path_;
  UniqueFd lock_;
  hdf5::Handle file_;
  FileState opened_;
};

void write_layer(hid_t parent, const CalibratedLayer& layer, const CalibrateHead& head) {
  const hdf5::Handle of_layer = hdf5::create_group(parent, std::to_string(layer.index));
  hdf5::write_attribute(of_layer.get(), "kv_heads", std::int64_t{layer.kv_heads});
  hdf5::write_attribute(of_layer.get(), "heads_per_kv", std::int64_t{layer.heads_per_kv});
  hdf5::write_attribute(of_layer.get(), "d", std::int64_t{layer.d});
  if (layer.rope) {
    hdf5::write_attribute(of_layer.get(), "interleaved", std::int64_t{layer.rope->interleaved});
    hdf5::write_dataset(of_layer.get(), kFrequencies, {layer.rope->inv_freq.size()},
                        layer.rope->inv_freq.data());
  }
  const hdf5::Handle heads = hdf5::create_group(of_layer.get(), "heads");
  for (int h = 0; h < layer.kv_heads; ++h) {
    const CalibratedHead made = head(layer, h);
    const hdf5::Handle group = hdf5::create_group(heads.get(), std::to_string(h));
    for (const auto& [name, array] : made.numbers) {
      hdf5::write_dataset(group.get(), name, Dims(array.shape.begin(), array.shape.end()),
                          array.values.data());
    }
    std::size_t most = 0;
    for (const KeyMarks& marks : made.marks) most = std::max(most, marks.size());
    std::vector<std::int64_t> all;
    for (KeyMarks marks : made.marks) {
      marks.resize(most);  // with zeros
      all.insert(all.end(), marks.begin(), marks.end());
    }
    hdf5::write_dataset(group.get(), kMarks, {made.marks.size(), most}, all.data());
  }
}

void write_file(const std::string& path, const Calibration& calibration,
                const std::string& producer, const CalibrateHead& head) {
  hdf5::Handle file = hdf5::create_file(path);
  const hdf5::Handle root = hdf5::open_group(file.get(), "/");
  hdf5::write_attribute(root.get(), "format", std::string(kCalibrationFormat));
  hdf5::write_attribute(root.get(), "format_version", std::int64_t{1});
  hdf5::write_attribute(root.get(), "producer", producer);
  hdf5::write_attribute(root.get(), "method", calibration.method);
  hdf5::write_attribute(root.get(), "params", calibration.params);
  hdf5::write_attribute(root.get(), "model", calibration.model);
  hdf5::write_attribute(root.get(), "n_layers", std::int64_t{calibration.n_layers});
  const hdf5::Handle texts = hdf5::create_group(root.get(), "texts");
  for (std::size_t i = 0; i < calibration.texts.size(); ++i) {
    const CalibratedText& text = calibration.texts[i];
    const hdf5::Handle group = hdf5::create_group(texts.get(), std::to_string(i));
    hdf5::write_attribute(group.get(), "dump", text.dump);
    hdf5::write_attribute(group.get(), "sequence", text.sequence);
    hdf5::write_attribute(group.get(), "tokens", std::int64_t{text.tokens});
  }
  const hdf5::Handle layers = hdf5::create_group(root.get(), "layers");
  for (const CalibratedLayer& layer : calibration.layers) write_layer(layers.get(), layer, head);
  hdf5::check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
}

}  // namespace

std::shared_ptr<const Calibration> open_calibration(const std::string& path,
                                                    const DumpOptions& options) {
  const auto reader = std::make_shared<CalibrationReader>(path);
  auto calibration = std::make_shared<Calibration>(reader->open(options));
  calibration->read = [reader](const auto&... wanted) { return reader->read(wanted...); };
  return calibration;
}

void write_calibration(const Calibration& calibration, const std::string& producer,
                       const CalibrateHead& head) {
  const hdf5::Session session;
  const std::string temporary = temporary_name(calibration.path);
  try {
    write_file(temporary, calibration, producer, head);
    replace_file(temporary, calibration.path);
  } catch (const hdf5::Error& error) {
    std::remove(temporary.c_str());
    throw IoError(fmt::format("{}: cannot be written ({}); check the folder and its free space",
                              calibration.path, error.what()));
  } catch (...) {
    std::remove(temporary.c_str());
    throw;
  }
}

}  // namespace kvbench
