#include "run/calibrate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "cellfiles/calibration_file.hpp"
#include "json/document.hpp"
#include "results/provenance.hpp"
#include "run/open_dumps.hpp"
#include "storage/codec_registry.hpp"
#include "sweep/dump_paths.hpp"
#include "sweep/named_files.hpp"
#include "sweep/parameter_columns.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/spelling.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

struct Text {
  const Dump* dump;
  const PlannedDump* planned;
  const PlannedSequence* sequence;
  Index tokens;

  std::string place() const { return dump->info().path + ": sequence " + sequence->name; }
};

// A method or a codec that is calibrated.
struct Calibrator {
  Calibrated by;
  std::function<CalibratedNumbers(const Params&, const CalibrationTexts&)> calibrate;
  // Whether its numbers are one for all KV heads of a layer.
  std::function<bool(const Params&)> of_layer;
};

Calibrator calibrator_of(const CalibrateRequest& request,
                         const std::vector<AlgorithmDescription>& algorithms) {
  std::vector<Calibrator> all;
  for (const AlgorithmDescription& algorithm : algorithms) {
    const auto no = [](const Params&) { return false; };
    all.push_back({calibrated_by(algorithm), algorithm.calibrate, no});
  }
  for (const CodecDescription& codec : all_codecs()) {
    all.push_back({calibrated_by(codec), codec.calibrate, codec.calibrates_layer});
  }
  std::vector<std::string> known;
  for (Calibrator& each : all) {
    if (!each.calibrate) continue;
    if (each.by.id == request.method) return std::move(each);
    known.push_back(each.by.id);
  }
  const std::string near = did_you_mean(request.method, known);
  throw InputError(fmt::format(
      "--method: {} is not a method or codec that is calibrated{}", request.method,
      near.empty() ? fmt::format("; expected one of {}", fmt::join(known, ", ")) : near));
}

// Throws InputError where there is another file than a calibration, a dump for one.
void refuse_other_file(const std::string& path) {
  std::error_code ignored;
  if (!file_exists(path) || std::filesystem::file_size(path, ignored) == 0) return;
  try {
    open_calibration(path);
  } catch (const InputError&) {
    throw InputError(
        fmt::format("--out: {} is there and is not a calibration file; name another", path));
  }
}

// The parameters that matter, each with one value.
Params params_of(const CalibrateRequest& request, const Calibrated& by) {
  constexpr const char* kPlace = "--params";
  ErrorList errors(kPlace);
  const nlohmann::json given = parse_document(request.params, kPlace, errors);
  if (!given.is_object()) errors.add("", "must be an object in braces, got " + shown(given));
  errors.throw_if_any();
  std::vector<Parameter> table;
  for (const Parameter& parameter : by.parameters) {
    const auto& names = by.calibration_params;
    if (std::ranges::find(names, parameter.name) != names.end()) table.push_back(parameter);
  }
  const auto columns = read_columns(given, {by.id, table, {}}, {}, "", errors);
  errors.throw_if_any();
  Params params;
  for (const ParameterColumn& column : *columns) {
    if (column.axis.values.size() != 1) {
      errors.add(column.axis.pointer, "must be one value; calibrate once for each");
    }
    params.set(column.parameter->name, column.axis.values.front());
  }
  errors.throw_if_any();
  return params;
}

// The texts of the open dumps that the request selects.
std::vector<Text> texts_of(const CalibrateRequest& request, const OpenDumps& dumps) {
  std::vector<Text> texts;
  std::set<std::string> found;
  for (std::size_t i = 0; i < dumps.dumps.size(); ++i) {
    for (const PlannedSequence& sequence : dumps.planned[i].sequences) {
      found.insert(sequence.name);
      const auto& wanted = request.sequences;
      if (!wanted.empty() && std::ranges::find(wanted, sequence.name) == wanted.end()) continue;
      texts.push_back({&dumps.dumps[i], &dumps.planned[i], &sequence, 0});
    }
  }
  ErrorList errors;
  for (const std::string& name : request.sequences) {
    if (found.contains(name)) continue;
    errors.add(fmt::format("--sequences: no dump has sequence {}; known are {}", name,
                           fmt::join(found, ", ")));
  }
  errors.throw_if_any();
  if (texts.empty()) throw InputError("--dump: names no text; give one or more dumps");
  return texts;
}

const PlannedLayer* find_layer(const Text& text, int index) {
  const auto& layers = text.sequence->layers;
  const auto found = std::ranges::find(layers, index, &PlannedLayer::index);
  return found == layers.end() ? nullptr : &*found;
}

void set_layers(const CalibrateRequest& request, const Text& first, Calibration& out) {
  std::set<int> indices(request.layers.begin(), request.layers.end());
  if (indices.empty()) {
    for (const PlannedLayer& layer : first.sequence->layers) indices.insert(layer.index);
  }
  for (const int index : indices) {
    const PlannedLayer* layer = find_layer(first, index);
    if (layer == nullptr) {
      throw InputError(
          fmt::format("{} has no layer {}; name others by --layers", first.place(), index));
    }
    out.layers.push_back(
        {index, layer->kv_heads, layer->shape.heads_per_kv, layer->shape.d, layer->shape.rope, {}});
  }
}

// Lengths of the texts; all must have the layers of the first, of one model.
void set_texts(const CalibrateRequest& request, std::vector<Text>& texts, Calibration& out) {
  ErrorList errors;
  std::set<std::pair<std::string, std::string>> seen;
  for (Text& text : texts) {
    for (const CalibratedLayer& wanted : out.layers) {
      const PlannedLayer* layer = find_layer(text, wanted.index);
      if (layer == nullptr) {
        errors.add(
            fmt::format("{} has no layer {}; name others by --layers", text.place(), wanted.index));
        continue;
      }
      const Index tokens = layer->shape.tokens;
      text.tokens = text.tokens == 0 ? tokens : std::min(text.tokens, tokens);
      const auto why =
          misfit(out, text.planned->model, wanted.index, layer->kv_heads, layer->shape);
      if (why) errors.add(fmt::format("{}, layer {}: {}", text.place(), wanted.index, *why));
    }
    if (request.tokens > 0) text.tokens = std::min(text.tokens, request.tokens);
    if (!seen.emplace(text.planned->fingerprint, text.sequence->name).second) {
      errors.add(text.place() + " is named twice; name its dump once");
    }
    out.texts.push_back({text.planned->fingerprint, text.sequence->name, text.tokens});
  }
  errors.throw_if_any();
}

void refuse_infinite(const CalibratedNumbers& numbers) {
  for (const auto& [name, array] : numbers) {
    if (!std::ranges::all_of(array.values, [](double x) { return std::isfinite(x); })) {
      throw CellError(name + " overflows");
    }
  }
}

// Makes the numbers of KV heads, one after the other.
class HeadCalibration {
 public:
  HeadCalibration(const Calibrator& calibrator, const Params& params,
                  const std::vector<Text>& texts)
      : calibrator_(calibrator), params_(params), texts_(texts) {}

  CalibratedHead operator()(const CalibratedLayer& layer, int kv_head) {
    if (!calibrator_.of_layer(params_)) return {made(layer, kv_head, kv_head + 1), take_marks()};
    if (kv_head == 0) of_layer_ = made(layer, 0, layer.kv_heads);
    return {of_layer_, take_marks()};
  }

 private:
  // Numbers of the KV heads [first, last) together.
  CalibratedNumbers made(const CalibratedLayer& layer, int first, int last) {
    marks_.assign(last - first, std::vector<KeyMarks>(texts_.size()));
    next_ = 0;
    std::string place;
    const auto for_each = [&](const auto& visit) {
      for (int head = first; head < last; ++head) {
        const std::string of_head = fmt::format("layer {}, KV head {}", layer.index, head);
        for (std::size_t i = 0; i < texts_.size(); ++i) {
          throw_if_stopped();
          const Text& text = texts_[i];
          place = fmt::format("{}, {}", text.place(), of_head);
          const auto data =
              text.dump->read_stream(text.sequence->name, layer.index, head, text.tokens);
          KeyMarks& marks = marks_[head - first][i];
          if (marks.empty()) marks = key_marks(data->stream.keys, text.tokens);
          visit(data->stream, text.tokens);
        }
        place = of_head;
      }
    };
    try {
      CalibratedNumbers numbers =
          calibrator_.calibrate(params_, {layer.d, layer.heads_per_kv, for_each});
      refuse_infinite(numbers);
      return numbers;
    } catch (const CellError& error) {
      throw InputError(
          fmt::format("{}: cannot be calibrated on: {}; leave it out by --sequences or "
                      "--layers",
                      place, error.what()));
    }
  }
  std::vector<KeyMarks> take_marks() { return std::move(marks_[next_++]); }

  const Calibrator& calibrator_;
  const Params& params_;
  const std::vector<Text>& texts_;
  CalibratedNumbers of_layer_;
  std::vector<std::vector<KeyMarks>> marks_;  // by head made last and text
  std::size_t next_ = 0;
};

}  // namespace

std::shared_ptr<const Calibration> calibrate(const CalibrateRequest& request,
                                             const std::vector<AlgorithmDescription>& algorithms) {
  const Calibrator calibrator = calibrator_of(request, algorithms);
  const Params params = params_of(request, calibrator.by);
  refuse_other_file(request.out);
  SweepConfig config;
  config.dumps = dumps_of_option(request.dumps);
  const OpenDumps dumps = open_dumps(config);
  std::vector<Text> texts = texts_of(request, dumps);
  Calibration calibration;
  calibration.path = std::filesystem::absolute(request.out).lexically_normal().string();
  calibration.method = calibrator.by.id;
  calibration.params = calibrated_params(calibrator.by, params);
  calibration.model = texts.front().planned->model;
  calibration.n_layers = texts.front().planned->n_layers;
  set_layers(request, texts.front(), calibration);
  set_texts(request, texts, calibration);
  write_calibration(calibration, "kvbench " + program_version(),
                    HeadCalibration(calibrator, params, texts));
  return open_calibration(calibration.path);
}

}  // namespace kvbench
