// Writes down what an algorithm keeps while it is replayed, as rows with lifetimes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/kept_cache.hpp"
#include "core/stream.hpp"
#include "replay/replay_cell.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

// The rows, replayed (algorithms/mechanisms/kept_rows_replay.hpp), give the same answers at scored
// rows and the same memory at all decode rows. Weights are those of scored rows: between them no
// one asks. Cannot be written as rows: a sum that the exact one replaces (SubGen's attribution),
// attention at positions of the cache, rules for answers (Sketch::answer_rule, with which
// denominator weights may be negative), features (SketchRow::feature), and the vectors of a method
// that drops nothing for good, which are declared in bytes.
class KeptRecorder final : public ReplayWatch {
 public:
  // Recorder of a cell on this stream, which must live as long.
  KeptRecorder(const Stream& stream, const ReplaySetting& setting, const ReplayCell& cell);

  void kept(Index row, bool scored, const Sketch& sketch) override;
  // After the replay; none where rows cannot say it. To be called once.
  std::optional<KeptRows> finish();

 private:
  // All of a row but weights and lifetime. Keys and values by their number in keys_, values_.
  struct Kind {
    std::int32_t token = -1;
    std::int32_t key = -1;
    std::int32_t value = -1;
    std::int32_t copies = 1;
    std::int16_t head = -1;
    std::uint8_t weight_numbers = 0;
    bool keeps_key = true;
    bool keeps_value = true;
    bool counts_as_token = true;

    auto operator<=>(const Kind&) const = default;
  };
  struct Row {
    Kind kind;
    double w_num = 1.0;
    double w_den = 1.0;
    Index begin = 0;
    Index end = KeptRow::kToTheEnd;
    bool scored = false;  // some scored row has seen these weights

    bool comes_before(const Row& other) const;
  };
  using Vectors = std::vector<std::vector<double>>;

  std::vector<Row> rows_of(const Sketch& sketch);
  void follow(std::vector<Row> now, Index row, bool scored);
  void match(Row& open, const Row& now, Index row, bool scored, std::vector<Row>& still_open);
  void close(Row row, Index end);
  bool leave_out_appended(std::vector<Row>& rows) const;
  void append_vectors(const Row& row, KeptRows& out) const;

  const Stream& stream_;
  const Index prompt_;
  const int element_bytes_;
  const bool never_evicts_;
  std::optional<Index> bytes_;  // declared: of a method that never evicts, or by the sketch
  bool expressible_ = true;
  std::optional<ChangeLog::Mark> taken_;
  double taken_scale_ = 0.0;
  std::vector<Row> open_;  // ordered
  std::vector<Row> closed_;
  Vectors keys_, values_;                                // every different one
  std::vector<std::int32_t> key_number_, value_number_;  // by the sketch's own: the last seen
  std::vector<Index> further_numbers_;                   // by decode row
};

}  // namespace kvbench
