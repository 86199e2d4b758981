#include "cellfiles/cache_head.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "cellfiles/repeated_tokens.hpp"
#include "dump/tensor.hpp"
#include "hdf5/attributes.hpp"
#include "hdf5/chunks.hpp"
#include "hdf5/stored_elements.hpp"
#include "hdf5/structure_errors.hpp"
#include "system/error.hpp"
#include "system/memory_limit.hpp"

namespace kvbench {
namespace {

constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;  // also of counts: sums stay numbers
constexpr std::int64_t kMaxHeads = 1024;                   // query heads of a group

// One number for each row: its dataset, what it may be, and the member of a row.
struct RowNumber {
  const char* name;
  std::int64_t least;
  std::int64_t most;
  std::int64_t (*get)(const KeptRow&);
  void (*set)(KeptRow&, std::int64_t);
};

constexpr std::array<RowNumber, 9> kRowNumbers = {{
    {"token", -1, kMaxTokens - 1, [](const KeptRow& row) { return std::int64_t{row.token}; },
     [](KeptRow& row, std::int64_t x) { row.token = static_cast<std::int32_t>(x); }},
    {"begin", 0, kMaxTokens, [](const KeptRow& row) { return std::int64_t{row.begin}; },
     [](KeptRow& row, std::int64_t x) { row.begin = x; }},
    {"end", 0, kMaxTokens, [](const KeptRow& row) { return std::int64_t{row.end}; },
     [](KeptRow& row, std::int64_t x) { row.end = x; }},
    {"head", -1, kMaxHeads - 1, [](const KeptRow& row) { return std::int64_t{row.head}; },
     [](KeptRow& row, std::int64_t x) { row.head = static_cast<std::int16_t>(x); }},
    {"copies", 1, kMaxTokens, [](const KeptRow& row) { return std::int64_t{row.copies}; },
     [](KeptRow& row, std::int64_t x) { row.copies = static_cast<std::int32_t>(x); }},
    {"keeps_key", 0, 1, [](const KeptRow& row) { return std::int64_t{row.keeps_key}; },
     [](KeptRow& row, std::int64_t x) { row.keeps_key = x != 0; }},
    {"keeps_value", 0, 1, [](const KeptRow& row) { return std::int64_t{row.keeps_value}; },
     [](KeptRow& row, std::int64_t x) { row.keeps_value = x != 0; }},
    {"counts_as_token", 0, 1, [](const KeptRow& row) { return std::int64_t{row.counts_as_token}; },
     [](KeptRow& row, std::int64_t x) { row.counts_as_token = x != 0; }},
    {"weight_numbers", 0, 2, [](const KeptRow& row) { return std::int64_t{row.weight_numbers}; },
     [](KeptRow& row, std::int64_t x) { row.weight_numbers = static_cast<std::uint8_t>(x); }},
}};

constexpr const char* kWeight = "weight";
constexpr const char* kNumerator = "weight_numerator";
constexpr const char* kDenominator = "weight_denominator";
constexpr const char* kBookkeeping = "bookkeeping";
constexpr const char* kAppend = "append";
constexpr const char* kGiven = "given";
constexpr std::array<const char*, 3> kDeclaredBytes = {"key_bytes", "value_bytes", "extra_bytes"};

std::vector<std::string> dataset_names() {
  std::vector<std::string> names = {kWeight, kNumerator, kDenominator,
                                    "key",   "value",    kBookkeeping};
  for (const RowNumber& number : kRowNumbers) names.emplace_back(number.name);
  return names;
}

std::vector<std::string> attribute_names() {
  std::vector<std::string> names = {"prompt_tokens", "tokens", "decode", "reads_future", "cell"};
  names.insert(names.end(), kDeclaredBytes.begin(), kDeclaredBytes.end());
  return names;
}

std::vector<std::uint64_t> extent_of(hid_t dataset) {
  return hdf5::extent(hdf5::Handle(H5Dget_space(dataset)).get());
}

// A dataset of the group with `rank` dimensions; none, and an error, where it is not readable.
hdf5::Handle open_checked(ErrorList& errors, hid_t group, const std::string& location,
                          const std::string& name, std::size_t rank) {
  hdf5::Handle dataset = dataset_of(errors, group, location, name);
  if (!dataset) return {};
  const auto dims = extent_of(dataset.get());
  const std::uint64_t largest = kMaxTokens;
  if (dims.size() != rank) {
    add(errors, location, "has {} dimensions; it must be {}", dims.size(),
        rank == 1 ? "[rows]" : "[rows, length of a vector]");
  } else if (std::any_of(dims.begin(), dims.end(), [&](auto size) { return size > largest; })) {
    add(errors, location, "shape [{}] has a dimension above {}", fmt::join(dims, ", "), largest);
  } else if (rank == 2 && dims[1] == 0) {
    add(errors, location, "shape [{}] has vectors of length 0", fmt::join(dims, ", "));
  } else if (const auto why = unreadable_storage(dataset.get())) {
    add(errors, location, "{}", *why);
  } else {
    return dataset;
  }
  return {};
}

bool are_integers(hid_t dataset) {
  const hdf5::Handle type(H5Dget_type(dataset));
  return H5Tget_class(type.get()) == H5T_INTEGER || hdf5::is_truth_type(type.get());
}

bool is_mask(hid_t dataset) {
  return hdf5::is_truth_type(hdf5::Handle(H5Dget_type(dataset)).get());
}

// Whether the numbers of this dataset are 0 and 1 alone, so that truth values are as good.
bool is_truth(const std::string& name) {
  return std::any_of(kRowNumbers.begin(), kRowNumbers.end(), [&](const RowNumber& number) {
    return number.name == name && number.least == 0 && number.most == 1;
  });
}

constexpr fmt::format_string<> kMask =
    "is a mask; a row's token is its position in the sequence, so store np.flatnonzero(mask)";

// Whether `token` is 0 or 1 in as many rows as the prompt has tokens, and nothing tells the rows
// apart: positions would name two tokens again and again.
bool is_mask_of_numbers(hid_t group, const KeptRows& kept) {
  constexpr Index kMinPrompt = 2;
  const auto rows = std::ssize(kept.rows);
  if (kept.prompt <= kMinPrompt || rows < kept.prompt) return false;
  for (const char* name : {"head", "begin", "end", "key", "value"}) {
    if (hdf5::has_link(group, name)) return false;
  }
  return std::all_of(kept.rows.begin(), kept.rows.end(),
                     [](const KeptRow& row) { return row.token == 0 || row.token == 1; });
}

enum class Elements { kReals, kEither };

// Whole numbers may be stored as floats.
void check_type(ErrorList& errors, const std::string& location, hid_t dataset, Elements wanted) {
  if (wanted == Elements::kEither && are_integers(dataset)) return;
  const auto stored = stored_type(dataset);
  if (const auto* why = std::get_if<std::string>(&stored)) {
    add(errors, location,
        "{}; store float16, float32, float64, or bfloat16 as uint16 with the "
        "attribute dtype = \"bfloat16\"",
        *why);
  }
}

Elements elements_of(const std::string& name) {
  return name == "key" || name == "value" ? Elements::kReals : Elements::kEither;
}

// Elements as doubles; the first that is not finite is an error.
std::vector<double> read_reals(ErrorList& errors, hid_t group, const std::string& location,
                               const std::string& name) {
  hdf5::Handle dataset = open_for_reading(group, name);
  const auto dims = extent_of(dataset.get());
  const auto found = stored_type(dataset.get());
  if (!std::holds_alternative<StoredType>(found)) {
    const std::vector<std::int64_t> integers = all_integers(std::move(dataset));
    return {integers.begin(), integers.end()};
  }
  const auto stored = std::get<StoredType>(found);
  const StoredElements elements(std::move(dataset));
  const std::size_t count = elements.all().elements();
  std::vector<std::byte> bytes(count * element_bytes(stored.type));
  if (count > 0) elements.read(elements.all(), bytes.data());
  if (stored.swapped) swap_bytes(stored.type, bytes.data(), count);
  const std::size_t bad = first_nonfinite(stored.type, bytes.data(), count);
  if (bad < count) {
    const std::size_t width = dims.size() == 2 ? dims[1] : 1;
    add(errors, join(location, name), "row {} is NaN or infinite; every number must be finite",
        bad / width);
  }
  std::vector<double> values(count);
  to_doubles(stored.type, bytes.data(), count, values.data());
  return values;
}

// Whole numbers, of floats too; the first that is not whole is an error.
std::vector<std::int64_t> read_integers(ErrorList& errors, hid_t group, const std::string& location,
                                        const std::string& name) {
  constexpr double kMaxExact = 0x1p53;
  hdf5::Handle dataset = open_for_reading(group, name);
  if (are_integers(dataset.get())) return all_integers(std::move(dataset));
  const std::vector<double> reals = read_reals(errors, group, location, name);
  std::vector<std::int64_t> integers(reals.size());
  const auto is_whole = [](double x) { return x == std::trunc(x) && std::abs(x) <= kMaxExact; };
  for (std::size_t r = 0; r < reals.size() && std::isfinite(reals[r]); ++r) {
    if (!is_whole(reals[r])) {
      add(errors, join(location, name), "row {} is {}; it must be an integer", r, reals[r]);
      break;
    }
    integers[r] = static_cast<std::int64_t>(reals[r]);
  }
  return integers;
}

// Whether every number is one that it may be.
bool read_row_numbers(ErrorList& errors, hid_t group, const std::string& location, KeptRows& kept) {
  const std::size_t before = errors.count();
  for (const RowNumber& number : kRowNumbers) {
    if (!hdf5::has_link(group, number.name)) continue;
    const std::size_t readable = errors.count();
    const std::vector<std::int64_t> values = read_integers(errors, group, location, number.name);
    if (errors.count() != readable) continue;
    for (std::size_t r = 0; r < kept.rows.size(); ++r) {
      if (values[r] < number.least || values[r] > number.most) {
        add(errors, join(location, number.name), "row {} is {}; it must be from {} to {}", r,
            values[r], number.least, number.most);
        break;
      }
      number.set(kept.rows[r], values[r]);
    }
  }
  return errors.count() == before;
}

void read_weights(ErrorList& errors, hid_t group, const std::string& location, KeptRows& kept) {
  const auto read = [&](const char* name, bool numerator, bool denominator) {
    if (!hdf5::has_link(group, name)) return;
    const std::vector<double> weights = read_reals(errors, group, location, name);
    for (std::size_t r = 0; r < kept.rows.size(); ++r) {
      if (numerator) kept.rows[r].w_num = weights[r];
      if (!denominator) continue;
      kept.rows[r].w_den = weights[r];
    }
    const auto negative =
        std::find_if(weights.begin(), weights.end(), [](double w) { return w < 0; });
    if (!denominator || negative == weights.end()) return;
    add(errors, join(location, name),
        "row {} has weight {}; weights of the denominator must be at least 0",
        negative - weights.begin(), *negative);
  };
  read(kWeight, true, true);
  read(kNumerator, true, false);
  read(kDenominator, false, true);
}

// One number where all rows weigh the same in both sums, two where they do not, none where all are
// 1.
std::uint8_t usual_weight_numbers(const std::vector<KeptRow>& rows) {
  const auto all = [&](const auto& holds) { return std::all_of(rows.begin(), rows.end(), holds); };
  if (all([](const KeptRow& row) { return row.w_num == 1.0 && row.w_den == 1.0; })) return 0;
  return all([](const KeptRow& row) { return row.w_num == row.w_den; }) ? 1 : 2;
}

// Rows that no stream could have, the first of each kind.
void check_rows(ErrorList& errors, const std::string& location, const KeptRows& kept) {
  const auto first = [&](const auto& is_bad) {
    return std::find_if(kept.rows.begin(), kept.rows.end(), is_bad);
  };
  const auto refuse = [&](const auto& is_bad, const auto& what) {
    const auto row = first(is_bad);
    if (row != kept.rows.end()) {
      add(errors, location, "row {}: {}", row - kept.rows.begin(), what(*row));
    }
  };
  const bool owns = !kept.keys.empty() && !kept.values.empty();
  refuse([&](const KeptRow& row) { return row.token < 0 && !owns; },
         [](const KeptRow&) {
           return "has token -1 (none), which needs both key and value; add them";
         });
  refuse([&](const KeptRow& row) { return row.begin < kept.prompt; },
         [&](const KeptRow& row) {
           return fmt::format(
               "begins at {}, in the prompt of {} tokens; rows are kept for decode "
               "rows",
               row.begin, kept.prompt);
         });
  refuse([](const KeptRow& row) { return row.end < row.begin; },
         [](const KeptRow& row) {
           return fmt::format("ends at {}, before it begins at {}", row.end, row.begin);
         });
  const auto is_appended = [&](const KeptRow& row) {
    return kept.appends && row.token >= kept.prompt;
  };
  refuse(
      [&](const KeptRow& row) {
        return !kept.reads_future && row.token > row.begin && !is_appended(row);
      },
      [](const KeptRow& row) {
        return fmt::format(
            "is of token {}, which is not there at row {}; let it begin at {}, or "
            "set the attribute reads_future = 1",
            row.token, row.begin, row.token);
      });
  refuse(is_appended, [](const KeptRow& row) {
    return fmt::format(
        "is of decode token {}, which decode = \"append\" keeps already; set "
        "decode = \"given\", or leave the row out",
        row.token);
  });
}

}  // namespace

std::string cache_head_path(const StreamId& id) {
  return fmt::format("/sequences/{}/layers/{}/heads/{}", id.sequence, id.layer, id.kv_head);
}

KeptHead check_cache_head(ErrorList& errors, hid_t group, const std::string& location) {
  KeptHead head;
  Attributes attributes(errors, group, location);
  refuse_unknown(errors, location, "attribute", hdf5::attribute_names(group), attribute_names());
  head.prompt = attributes.integer("prompt_tokens", 0, kMaxTokens).value_or(0);
  if (attributes.has("tokens")) head.tokens = attributes.integer("tokens", 1, kMaxTokens);
  if (attributes.has("cell")) head.cell = attributes.text("cell").value_or("");
  if (attributes.has("reads_future")) attributes.integer("reads_future", 0, 1);
  if (attributes.has("decode")) {
    const auto decode = attributes.text("decode");
    if (decode && *decode != kAppend && *decode != kGiven) {
      add(errors, location, "attribute decode is '{}'; it must be '{}' or '{}'", *decode, kAppend,
          kGiven);
    }
  }
  for (const char* name : kDeclaredBytes) {
    if (attributes.has(name)) attributes.integer(name, 0, kMaxBytes);
  }

  const std::vector<std::string> names = hdf5::children(group);
  refuse_unknown(errors, location, "dataset", names, dataset_names());
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!has("token")) {
    add(errors, join(location, "token"), "dataset is missing; it has the position of each row");
  }
  if (has(kWeight) && (has(kNumerator) || has(kDenominator))) {
    add(errors, location, "has {} and {}; give one or the other", kWeight,
        has(kNumerator) ? kNumerator : kDenominator);
  } else if (has(kNumerator) != has(kDenominator)) {
    add(errors, location, "has {} alone; give both weights",
        has(kNumerator) ? kNumerator : kDenominator);
  }
  std::optional<std::uint64_t> rows;
  const std::vector<std::string> known = dataset_names();
  for (const std::string& name : names) {
    const bool vectors = name == "key" || name == "value";
    const std::string place = join(location, name);
    if (std::find(known.begin(), known.end(), name) == known.end()) continue;
    const hdf5::Handle dataset = open_checked(errors, group, place, name, vectors ? 2 : 1);
    if (!dataset) continue;
    if (is_mask(dataset.get()) && !is_truth(name)) {
      add(errors, place, name == "token" ? kMask : "must be numbers, got truth values");
      continue;
    }
    check_type(errors, place, dataset.get(), elements_of(name));
    const auto dims = extent_of(dataset.get());
    if (name == "key") head.d = dims[1];
    if (name == "value") head.dv = dims[1];
    if (name == kBookkeeping) {
      const Index tokens = head.prompt + static_cast<Index>(dims[0]);
      if (head.tokens && *head.tokens != tokens) {
        add(errors, place, "has {} numbers; there are {} decode rows", dims[0],
            *head.tokens - head.prompt);
      }
      head.tokens = tokens;
      continue;
    }
    if (rows && *rows != dims[0]) {
      add(errors, place,
          "has {} rows and another dataset of the head has {}; all have one for each "
          "row",
          dims[0], *rows);
    }
    rows = dims[0];
  }
  head.rows = static_cast<Index>(rows.value_or(0));
  const double bytes = head.rows * (sizeof(KeptRow) + 16.0 * (head.d + head.dv));
  if (bytes > usable_memory()) {
    add(errors, location, "its {} rows need {:.3g} GiB of memory and there are {:.3g} GiB",
        head.rows, bytes / 0x1p30, usable_memory() / 0x1p30);
  }
  return head;
}

KeptRows read_kept_rows(ErrorList& errors, hid_t group, const std::string& location) {
  KeptRows kept;
  kept.prompt = hdf5::read_integer(group, "prompt_tokens").value_or(0);
  if (hdf5::has_attribute(group, "decode")) {
    kept.appends = hdf5::read_string(group, "decode") == kAppend;
  }
  if (hdf5::has_attribute(group, "reads_future")) {
    kept.reads_future = hdf5::read_integer(group, "reads_future") == 1;
  }
  for (const char* name : kDeclaredBytes) {
    if (!hdf5::has_attribute(group, name)) continue;
    kept.bytes = kept.bytes.value_or(0) + hdf5::read_integer(group, name).value_or(0);
  }
  const hdf5::Handle token = hdf5::open_dataset(group, "token");
  kept.rows.resize(extent_of(token.get()).at(0));
  for (KeptRow& row : kept.rows) row.begin = kept.prompt;
  const bool are_numbers = read_row_numbers(errors, group, location, kept);
  if (are_numbers && is_mask_of_numbers(group, kept)) add(errors, join(location, "token"), kMask);
  if (hdf5::has_attribute(group, "tokens")) {
    const auto tokens = hdf5::read_integer(group, "tokens");
    for (KeptRow& row : kept.rows) {
      if (row.end == tokens) row.end = KeptRow::kToTheEnd;
    }
  }
  read_weights(errors, group, location, kept);
  const bool weighs = hdf5::has_link(group, kWeight) || hdf5::has_link(group, kNumerator);
  if (!hdf5::has_link(group, "weight_numbers")) {
    const std::uint8_t usual = usual_weight_numbers(kept.rows);
    for (KeptRow& row : kept.rows) row.weight_numbers = usual;
  }
  if (hdf5::has_link(group, "key")) kept.keys = read_reals(errors, group, location, "key");
  if (hdf5::has_link(group, "value")) kept.values = read_reals(errors, group, location, "value");
  if (hdf5::has_link(group, kBookkeeping)) {
    kept.further_numbers = read_integers(errors, group, location, kBookkeeping);
    if (std::any_of(kept.further_numbers.begin(), kept.further_numbers.end(),
                    [](Index x) { return x < 0 || x > kMaxBytes; })) {
      add(errors, join(location, kBookkeeping), "has a count that is not from 0 to {}", kMaxBytes);
    }
  }
  if (are_numbers) check_rows(errors, location, kept);
  if (const auto twice = repeated_token(kept); are_numbers && !weighs && twice) {
    add(errors, join(location, "token"),
        "rows {} and {} are both of token {}, which would count twice; drop one of them from every "
        "dataset, let one end where the other begins, or store weights where a sample has it twice",
        std::min(twice->row, twice->earlier), std::max(twice->row, twice->earlier),
        kept.rows[twice->row].token);
  }
  return kept;
}

void complete(KeptHead& head, const KeptRows& kept) {
  head.least_tokens = head.prompt + 1;
  for (const KeptRow& row : kept.rows) {
    head.least_tokens = std::max(head.least_tokens, Index{row.token} + 1);
    head.query_heads = std::max(head.query_heads, row.head + 1);
  }
}

void add_to_hash(Hash128& hash, const KeptHead& head, const KeptRows& kept) {
  hash.add(
      fmt::format("{}:{} {} {} P={} n={} rows={} d={} dv={} append={} future={} bytes={} more={}\n",
                  head.sequence.size(), head.sequence, head.layer, head.kv_head, head.prompt,
                  head.tokens.value_or(0), kept.rows.size(), head.d, head.dv, kept.appends,
                  kept.reads_future, kept.bytes.value_or(-1), kept.further_numbers.size()));
  for (const KeptRow& row : kept.rows) {
    std::array<std::int64_t, kRowNumbers.size()> numbers{};
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = kRowNumbers[i].get(row);
    hash.add(numbers.data(), sizeof numbers);
    const std::array<double, 2> weights = {row.w_num + 0.0, row.w_den + 0.0};
    hash.add(weights.data(), sizeof weights);
  }
  for (const auto* all : {&kept.keys, &kept.values}) {
    hash.add(all->data(), all->size() * sizeof(double));
  }
  hash.add(kept.further_numbers.data(), kept.further_numbers.size() * sizeof(Index));
}

void write_cache_head(hid_t group, const StreamShape& shape, const KeptRows& kept) {
  const std::vector<KeptRow>& rows = kept.rows;
  const std::uint64_t count = rows.size();
  hdf5::write_attribute(group, "prompt_tokens", std::int64_t{kept.prompt});
  hdf5::write_attribute(group, "tokens", std::int64_t{shape.tokens});
  hdf5::write_attribute(group, "decode", std::string(kept.appends ? kAppend : kGiven));
  if (kept.reads_future) hdf5::write_attribute(group, "reads_future", std::int64_t{1});
  if (kept.bytes) hdf5::write_attribute(group, "extra_bytes", std::int64_t{*kept.bytes});
  KeptRow usual;
  usual.begin = kept.prompt;
  usual.weight_numbers = usual_weight_numbers(rows);
  for (const RowNumber& number : kRowNumbers) {
    std::vector<std::int32_t> values;
    values.reserve(rows.size());
    bool needed = number.name == kRowNumbers.front().name;
    for (const KeptRow& row : rows) {
      const std::int64_t x = number.get(row);
      needed = needed || x != number.get(usual);
      values.push_back(static_cast<std::int32_t>(x == KeptRow::kToTheEnd ? shape.tokens : x));
    }
    if (needed) hdf5::write_dataset(group, number.name, {count}, values.data());
  }
  const auto write_weights = [&](const char* name, double KeptRow::* weight) {
    std::vector<double> values;
    values.reserve(rows.size());
    for (const KeptRow& row : rows) values.push_back(row.*weight);
    hdf5::write_dataset(group, name, {count}, values.data());
  };
  const std::uint8_t weights = usual_weight_numbers(rows);
  const bool is_sample = weights == 0 && repeated_token(kept);  // its weights are all 1
  if (weights == 1 || is_sample) write_weights(kWeight, &KeptRow::w_num);
  if (weights == 2) {
    write_weights(kNumerator, &KeptRow::w_num);
    write_weights(kDenominator, &KeptRow::w_den);
  }
  const auto length = [](Index x) { return static_cast<std::uint64_t>(x); };
  if (!kept.keys.empty()) {
    hdf5::write_dataset(group, "key", {count, length(shape.d)}, kept.keys.data());
  }
  if (!kept.values.empty()) {
    hdf5::write_dataset(group, "value", {count, length(shape.dv)}, kept.values.data());
  }
  if (!kept.further_numbers.empty()) {
    hdf5::write_dataset(group, kBookkeeping, {kept.further_numbers.size()},
                        kept.further_numbers.data());
  }
}

}  // namespace kvbench
