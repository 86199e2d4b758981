#include "algorithms/composition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/row_exponentials.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

using Part = std::shared_ptr<const AlgorithmDescription>;

// Shape of the stream of `kept` tokens of the prompt and all after it.
StreamShape shape_of_kept(const StreamShape& shape, Index prompt, Index kept) {
  StreamShape out = shape;
  out.tokens = kept + shape.tokens - prompt;
  out.first_query = kept + std::max<Index>(0, shape.first_query - prompt);
  out.window = out.chunk = 0;
  out.wo_v_l1 = false;
  out.hidden = 0;
  out.repeat = nullptr;
  return out;
}

// A stream's tokens that were kept of its prompt, and all that follow it, as a stream.
class KeptStream {
 public:
  // `tokens`: ascending, of the prompt. `all_queries`: those of the prompt's tokens too.
  KeptStream(const Stream& all, Index prompt, const std::vector<std::int32_t>& tokens,
             bool all_queries)
      : tokens_(tokens) {
    const auto kept = std::ssize(tokens);
    for (Index token = prompt; token < all.shape.tokens; ++token) {
      tokens_.push_back(static_cast<std::int32_t>(token));
    }
    stream_.id = all.id;
    stream_.shape = shape_of_kept(all.shape, prompt, kept);
    stream_.sinks = all.sinks;
    stream_.alibi_slopes = all.alibi_slopes;
    stream_.keys = gathered(all.keys, 0, keys_);
    stream_.values = gathered(all.values, 0, values_);
    if (all_queries) stream_.shape.first_query = 0;
    const Index stored = std::max(prompt, all.shape.first_query) - all.shape.first_query;
    queries_.resize(all.queries.size());
    for (std::size_t g = 0; g < all.queries.size(); ++g) {
      const ConstMatrix& of = all.queries[g];
      stream_.queries.push_back(
          all_queries ? gathered(of, all.shape.first_query, queries_[g])
                      : ConstMatrix(of.row(stored), of.rows - stored, of.cols, of.stride));
    }
  }
  KeptStream(const KeptStream&) = delete;
  KeptStream& operator=(const KeptStream&) = delete;

  const Stream& stream() const { return stream_; }
  // By its own token: the token of the whole stream.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }

 private:
  ConstMatrix gathered(const ConstMatrix& all, Index first, std::vector<double>& out) const {
    out.reserve(tokens_.size() * all.cols);
    for (const std::int32_t token : tokens_) {
      const double* row = all.row(token - first);
      out.insert(out.end(), row, row + all.cols);
    }
    return {out.data(), std::ssize(tokens_), all.cols};
  }

  std::vector<std::int32_t> tokens_;
  std::vector<double> keys_;
  std::vector<double> values_;
  std::vector<std::vector<double>> queries_;
  Stream stream_;
};

void add_lookup(const Sketch::Lookup& more, Sketch::Lookup& sum) {
  sum.held_numbers += more.held_numbers;
  sum.held_bits += more.held_bits;
  sum.read_numbers += more.read_numbers;
  sum.read_bits += more.read_bits;
  sum.read_key_numbers += more.read_key_numbers;
  sum.shared_numbers += more.shared_numbers;
  sum.shared_bits += more.shared_bits;
}

// "quest over what snapkv kept: reason"
std::string over_kept(const Part& first, const Part& reader, const std::string& reason) {
  return fmt::format("{} over what {} kept: {}", reader->id, first->id, reason);
}

class Composition final : public Algorithm {
 public:
  Composition(Part first, Part reader, const Params& params, const CellContext& context)
      : context_(context),
        reading_(std::move(reader)),
        keeping_(std::move(first)),
        params_(parts_of(params)),
        first_needs_(keeping_->needs(params_.first)),
        first_(keeping_->create(params_.first, context)) {}

  void extend(Index first, Index last) override {
    first_->extend(first, last);
    if (reader_ == nullptr) return;  // the prompt
    if (first_->sketch().kept_counts().tokens != kept_ + last - context_.prompt) {
      throw CellError(keeping_->id + " adds or drops tokens after the prompt, which " +
                      reading_->id + " would not see");
    }
    const Index before = context_.prompt - kept_;  // tokens that were dropped
    reader_->extend(first - before, last - before);
    for (Index token = first; token < last; ++token) {
      sketch_.held->tokens.push_back(static_cast<std::int32_t>(token));
    }
    follow();
  }

  void finish_prompt() override {
    first_->finish_prompt();
    const std::vector<std::int32_t> tokens = kept_tokens();
    kept_ = std::ssize(tokens);
    const Params& params = params_.second;
    all_ = std::make_unique<const KeptStream>(context_.stream, context_.prompt, tokens,
                                              reading_->needs(params).prompt_queries);
    const Stream& stream = all_->stream();
    if (const auto reason = reading_->skip_reason(params, stream.shape, kept_)) {
      throw CellError(over_kept(keeping_, reading_, *reason));
    }
    const SharedContext setting{stream, kept_, context_.kernels};
    for (const SharedWork& work :
         reading_->shared_work(params, stream.shape, kept_, context_.seed)) {
      shared_.add(work, setting);
    }
    reader_ = reading_->create(params,
                               {stream, kept_, context_.seed, context_.kernels, shared_, nullptr});
    if (kept_ > 0) reader_->extend(0, kept_);
    reader_->finish_prompt();
    sketch_.held = Sketch::Held{tokens, 0};
    follow();
  }

  void prepare(const RowLogits& row) override {
    if (first_needs_.row_logits) first_->prepare(row);
    take(row);
    reader_->prepare(row_);
    follow();
  }

  void answered(const RowLogits& row) override {
    reader_->answered(row_);
    if (first_needs_.row_logits) first_->answered(row);
    follow();
  }

  Derived derived() const override {
    Derived all = first_->derived();
    for (auto& [name, value] : reader_->derived()) all.emplace_back(kThen + name, std::move(value));
    return all;
  }

  Counters counters() const override {
    Counters sum = first_->counters();
    sum.clamped += reader_->counters().clamped;
    return sum;
  }

 private:
  // Ascending.
  std::vector<std::int32_t> kept_tokens() const {
    std::vector<std::int32_t> tokens;
    for (const SketchRow& row : first_->sketch().rows()) {
      const bool is_plain = row.token >= 0 && row.own_key < 0 && row.own_value < 0 &&
                            row.w_num == 1.0 && row.w_den == 1.0 && row.copies == 1 &&
                            row.keeps_key && row.keeps_value && row.head < 0;
      if (!is_plain) {
        throw CellError(keeping_->id +
                        " keeps more than tokens of weight 1 for all query heads, which " +
                        reading_->id + " would lose");
      }
      tokens.push_back(row.token);
    }
    std::sort(tokens.begin(), tokens.end());
    return tokens;
  }

  // Logits of the row that the reading method sees, of the kept tokens.
  void take(const RowLogits& row) {
    const std::vector<std::int32_t>& tokens = all_->tokens();
    const Index end = row.row + 1 - context_.prompt + kept_;
    const std::size_t heads = row.heads_per_kv;
    x_.resize(heads * end);
    e_.resize(x_.size());
    max_.resize(heads);
    for (int g = 0; g < row.heads_per_kv; ++g) {
      double* x = x_.data() + g * end;
      for (Index j = 0; j < end; ++j) x[j] = row.logit(g, tokens[j]);
      max_[g] = exponentiate(x, e_.data() + g * end, 0, end, row.sink(g));
    }
    row_ = row;
    row_.row = end - 1;
    row_.lo = 0;
    row_.end = end;
    row_.x = x_.data();
    row_.e = e_.data();
    row_.max = max_.data();
    row_.stride = end;
    row_.column = nullptr;
  }

  // Takes over what the reading method reads and stores.
  void follow() {
    const Sketch& read = reader_->sketch();
    if (read.changes().now() != seen_) {
      std::optional<Sketch::Held> held = std::move(sketch_.held);
      sketch_ = read.renamed(all_->tokens());
      sketch_.held = std::move(held);
      seen_ = read.changes().now();
    }
    const Sketch& kept = first_->sketch();
    sketch_.lookup = read.lookup;
    add_lookup(kept.lookup, sketch_.lookup);
    sketch_.held->bookkeeping = kept.kept_counts().bookkeeping;
  }

  const CellContext context_;
  const Part reading_;
  const Part keeping_;
  const std::pair<Params, Params> params_;
  const Needs first_needs_;
  const std::unique_ptr<Algorithm> first_;
  Index kept_ = 0;  // tokens of the prompt
  std::unique_ptr<const KeptStream> all_;
  SharedResults shared_;               // work of the reading method
  std::unique_ptr<Algorithm> reader_;  // null until the prompt is over
  ChangeLog::Mark seen_;               // state of its sketch
  RowLogits row_;                      // the row as it sees it
  std::vector<double> x_, e_, max_;
};

// Tokens of the prompt that are kept at most, as far as the shape decides.
Index most_of_prompt(const AlgorithmDescription& first, const Params& params,
                     const StreamShape& shape, Index prompt) {
  if (!first.most_kept) return prompt;
  const auto most = first.most_kept(params, shape, prompt);
  return most ? std::clamp<Index>(most->keys - (shape.tokens - prompt), 0, prompt) : prompt;
}

std::optional<std::pair<std::string, std::string>> invalid_pair(const Part& first,
                                                                const Part& reader,
                                                                const Params& params) {
  const auto [of_first, of_reader] = parts_of(params);
  if (auto error = first->validate(of_first)) return error;
  if (auto error = reader->validate(of_reader)) {
    return std::pair{kThen + error->first, std::move(error->second)};
  }
  if (auto why = cannot_be_first(*first, of_first)) return std::pair{"then", std::move(*why)};
  if (!reader->needs(of_reader).positions) return std::nullopt;
  return std::pair{"then", fmt::format("{} turns keys back by their positions with these "
                                       "parameters, and what {} kept has gaps; give others",
                                       reader->id, first->id)};
}

std::optional<std::string> skipped_pair(const Part& first, const Part& reader, const Params& params,
                                        const StreamShape& shape, Index prompt) {
  const auto [of_first, of_reader] = parts_of(params);
  if (auto reason = first->skip_reason(of_first, shape, prompt)) return reason;
  if (shape.slides()) {
    return fmt::format(
        "the layer's rows see {} of {} tokens, and {} reads all that {} kept of the prompt",
        shape.reach(), shape.tokens, reader->id, first->id);
  }
  const Index kept = most_of_prompt(*first, of_first, shape, prompt);
  auto reason = reader->skip_reason(of_reader, shape_of_kept(shape, prompt, kept), kept);
  return reason ? std::optional(over_kept(first, reader, *reason)) : std::nullopt;
}

// Both, and the kept stream.
CellMemory memory_of_pair(const Part& first, const Part& reader, const Params& params,
                          const StreamShape& shape, Index prompt) {
  const auto [of_first, of_reader] = parts_of(params);
  const Index kept = most_of_prompt(*first, of_first, shape, prompt);
  const StreamShape rest = shape_of_kept(shape, prompt, kept);
  const CellMemory a = first->memory(of_first, shape, prompt);
  const CellMemory b = reader->memory(of_reader, rest, kept);
  double working = std::max(a.working, b.working);
  double shared = 0.0;
  for (const SharedWork& work : reader->shared_work(of_reader, rest, kept, 0)) {
    shared += work.bytes();
    working = std::max(working, work.scratch(rest, kept));
  }
  const bool all_queries = reader->needs(of_reader).prompt_queries;
  const Index numbers = shape.d + shape.dv + (all_queries ? shape.heads_per_kv * shape.d : 0) +
                        2 * shape.heads_per_kv;
  const double held = (8.0 * numbers + 2.0 * kSketchRowBytes) * rest.tokens;
  return {.held = a.held + b.held + shared + held, .working = working};
}

}  // namespace

std::optional<std::string> cannot_be_first(const AlgorithmDescription& algorithm,
                                           const Params& params) {
  const auto refuse = [&](const char* why) {
    return fmt::format(
        "{} {}; name a method first that keeps tokens as they are, once, such as "
        "snapkv",
        algorithm.id, why);
  };
  if (algorithm.reader) return refuse("is two methods already");
  if (algorithm.never_evicts(params)) return refuse("keeps every token and reads some itself");
  if (algorithm.makes_values(params)) return refuse("keeps values of its own making");
  if (!algorithm.only_appends(params)) return refuse("may drop tokens after the prompt");
  if (algorithm.weighs(params)) return refuse("keeps tokens with weights, which would be lost");
  return std::nullopt;
}

std::pair<Params, Params> parts_of(const Params& params) {
  std::pair<Params, Params> parts;
  for (const auto& [name, value] : params.entries()) {
    const auto of_reader = name_in_reader(name);
    (of_reader ? parts.second : parts.first).set(of_reader.value_or(name), value);
  }
  return parts;
}

AlgorithmDescription named_in_pair(AlgorithmDescription reader) {
  for (Parameter& parameter : reader.parameters) parameter.name = kThen + parameter.name;
  for (ExactlyOneOf& exclusive : reader.exactly_one_of) {
    for (auto& names : exclusive.alternatives) {
      for (std::string& name : names) name.insert(0, kThen);
    }
  }
  return reader;
}

std::shared_ptr<const AlgorithmDescription> composition(const AlgorithmDescription& first_method,
                                                        const AlgorithmDescription& reading) {
  const auto reader = std::make_shared<const AlgorithmDescription>(reading);
  const auto changed = std::make_shared<AlgorithmDescription>(first_method);
  changed->for_less_memory = "the pair's memory has what " + reader->id +
                             " stores to find tokens; give a number of tokens";
  for (Parameter& parameter : changed->parameters) parameter.takes_memory = false;
  const Part first = changed;
  const auto pair = std::make_shared<AlgorithmDescription>();
  AlgorithmDescription& d = *pair;
  d.first = first;
  d.reader = reader;
  d.id = first->id + kPairMark + reader->id;
  d.title = first->title + "; of these " + reader->title;
  d.source = first->source + "; " + reader->source;
  const AlgorithmDescription named = named_in_pair(reading);
  d.parameters = first->parameters;
  d.parameters.insert(d.parameters.end(), named.parameters.begin(), named.parameters.end());
  d.exactly_one_of = first->exactly_one_of;
  d.exactly_one_of.insert(d.exactly_one_of.end(), named.exactly_one_of.begin(),
                          named.exactly_one_of.end());
  d.for_less_memory = first->for_less_memory;
  d.derived = first->derived;
  for (const DerivedKey& key : reader->derived) {
    const bool is_common = key.name == kCalibratedOnText;
    if (is_common && std::ranges::count(d.derived, key.name, &DerivedKey::name) > 0) continue;
    d.derived.push_back({is_common ? key.name : kThen + key.name, key.definition});
  }
  d.limits.alibi = first->limits.alibi.empty() ? reader->limits.alibi : first->limits.alibi;
  d.limits.all_tokens = d.id + " reads after the prompt alone";
  d.randomised = [first, reader](const Params& params) {
    const auto [of_first, of_reader] = parts_of(params);
    return first->randomised(of_first) || reader->randomised(of_reader);
  };
  d.needs = [first, reader](const Params& params) {
    const auto [of_first, of_reader] = parts_of(params);
    return Needs{.row_logits = true,
                 .prompt_queries = first->needs(of_first).prompt_queries ||
                                   reader->needs(of_reader).prompt_queries};
  };
  d.validate = [first, reader](const Params& params) {
    return invalid_pair(first, reader, params);
  };
  d.skip_reason = [first, reader](const Params& params, const StreamShape& shape, Index prompt) {
    return skipped_pair(first, reader, params, shape, prompt);
  };
  d.misfit = [first, reader](const Params& params, const StreamId& id, const StreamShape& shape,
                             Index prompt) -> std::optional<Misfit> {
    const auto [of_first, of_reader] = parts_of(params);
    std::optional<Misfit> found;
    if (first->misfit) found = first->misfit(of_first, id, shape, prompt);
    if (found || !reader->misfit) return found;
    found = reader->misfit(of_reader, id, shape, prompt);
    if (found) found->parameter = kThen + found->parameter;
    return found;
  };
  d.shared_work = [first](const Params& params, const StreamShape& shape, Index prompt,
                          std::uint32_t seed) {
    return first->shared_work(parts_of(params).first, shape, prompt, seed);
  };
  d.replay_scope = [first](const Params& params) {
    return first->replay_scope(parts_of(params).first);
  };
  d.model_work = [first](const Params& params, std::uint32_t seed) {
    return first->model_work(parts_of(params).first, seed);
  };
  d.not_stored = [first, reader](const Params& params) {
    const auto [of_first, of_reader] = parts_of(params);
    auto reason = first->not_stored(of_first);
    return reason ? reason : reader->not_stored(of_reader);
  };
  d.never_evicts = [](const Params&) { return true; };
  d.memory = [first, reader](const Params& params, const StreamShape& shape, Index prompt) {
    return memory_of_pair(first, reader, params, shape, prompt);
  };
  d.create = [first, reader](const Params& params, const CellContext& context) {
    return std::make_unique<Composition>(first, reader, params, context);
  };
  return pair;
}

}  // namespace kvbench
