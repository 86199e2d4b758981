#include "sweep/named_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/composition.hpp"
#include "json/pointer.hpp"
#include "sweep/axis.hpp"
#include "sweep/dump_paths.hpp"
#include "sweep/parameter_columns.hpp"

namespace kvbench {
namespace {

auto& list_of(Plan& plan, const KeptCache*) { return plan.caches; }
auto& list_of(Plan& plan, const Calibration*) { return plan.calibrations; }

std::optional<Misfit> misfit_of_calibration(const Calibration& file, const std::string& name,
                                            const PlannedDump& dump, const WorkGroup& group,
                                            const Calibrated& by, const Params& params) {
  const auto refuse = [&](std::string clause) {
    return Misfit{name, std::move(clause), Misfit::Kind::kError};
  };
  if (file.method != by.id) {
    return refuse(fmt::format("is a calibration of {}, and the {} is {}; calibrate {}", file.method,
                              by.kind, by.id, by.id));
  }
  if (const std::string own = calibrated_params(by, params); own != file.params) {
    return refuse(fmt::format("was calibrated with {}, and the cell has {}; calibrate with these",
                              file.params, own));
  }
  if (auto why = misfit(file, dump.model, group.layer, group.kv_heads, group.shape)) {
    return refuse(std::move(*why));
  }
  if (file.find(group.layer) == nullptr) {
    return Misfit{name,
                  "the calibration file does not have this layer; make one by kvbench calibrate "
                  "without --layers",
                  Misfit::Kind::kSkip};
  }
  return std::nullopt;
}

// Paths and globs of files as absolute paths, each once. Relative ones start at `folder`.
void find_files(ParameterColumn& column, const std::string& folder, ErrorList& errors) {
  if (!is_file(column.parameter->kind)) return;
  Axis found{{}, column.axis.pointer, column.axis.single, false};
  std::set<Value> seen;
  for (std::size_t i = 0; i < column.axis.values.size(); ++i) {
    Value value = column.axis.values[i];
    const auto add = [&] {
      if (seen.insert(value).second) found.values.push_back(value);
    };
    if (std::holds_alternative<std::string>(value)) add();  // a word in place of a path
    visit_file(value, [&](auto& parameter) {
      const std::string written = parameter.path;
      for (const std::string& file : files_named(written, folder, column.axis.place(i), errors)) {
        parameter.path = std::filesystem::path(file).lexically_normal().string();
        add();
      }
    });
  }
  found.single = found.single && found.values.size() == 1;
  column.axis = std::move(found);
}

}  // namespace

bool find_files(std::vector<ParameterColumn>& columns, const std::optional<std::string>& folder,
                ErrorList& errors) {
  const std::size_t before = errors.count();
  for (ParameterColumn& column : columns) {
    if (folder) find_files(column, *folder, errors);
  }
  return errors.count() == before;
}

void take_files(const SweepConfig& config, Plan& plan, ErrorList& errors) {
  std::map<std::string, std::string> seen;  // fingerprint -> path
  const auto take = [&](const auto& file, const std::string& place) {
    if (!file.content) {
      errors.add(place, file.path + " was not opened");
      return;
    }
    const auto [first, fresh] = seen.emplace(file.content->fingerprint, file.path);
    if (fresh) list_of(plan, file.content.get()).push_back(file.content);
    if (first->second == file.path) return;
    errors.add(place, fmt::format("{} and {} have the same content; list one of them",
                                  first->second, file.path));
  };
  for (const SweepEntry& entry : config.entries) {
    for (const auto& [name, values] : entry.axes) {
      const std::string place = entry.place_of(name);
      for (const Value& value : values) {
        visit_file(value, [&](const auto& file) { take(file, place); });
      }
    }
    entry.each_codec([&](const CodecSetting& setting) {
      for (const auto& [name, value] : setting.params.entries()) {
        visit_file(value, [&](const auto& file) { take(file, entry.storage_pointer); });
      }
    });
  }
  errors.throw_if_any();
}

std::string calibrated_params(const Calibrated& of, const Params& params) {
  nlohmann::json object = nlohmann::json::object();
  for (const std::string& name : of.calibration_params) {
    const auto parameter = std::ranges::find(of.parameters, name, &Parameter::name);
    const Value* value = params.find(name);
    object[name] = value_json(value != nullptr ? *value : default_of(*parameter));
  }
  return exact_line(object);
}

std::optional<Misfit> misfit_of_files(const PlannedDump& dump, const WorkGroup& group,
                                      const AlgorithmDescription& algorithm, const Params& params) {
  if (algorithm.reader) {
    const auto [of_first, of_reader] = parts_of(params);
    auto found = misfit_of_files(dump, group, *algorithm.first, of_first);
    if (found) return found;
    found = misfit_of_files(dump, group, *algorithm.reader, of_reader);
    if (found) found->parameter = kThen + found->parameter;
    return found;
  }
  for (const auto& [name, value] : params.entries()) {
    if (const auto* file = std::get_if<CalibrationParameter>(&value)) {
      auto found = misfit_of_calibration(*file->content, name, dump, group,
                                         calibrated_by(algorithm), params);
      if (found) return found;
    }
    const auto* file = std::get_if<CacheParameter>(&value);
    if (file == nullptr || file->content->dump.empty()) continue;
    if (file->content->dump == dump.fingerprint) continue;
    return Misfit{name,
                  "the cache file is of another dump, with fingerprint " + file->content->dump,
                  Misfit::Kind::kSkip};
  }
  return std::nullopt;
}

std::optional<StorageMisfit> misfit_of_files(const PlannedDump& dump, const WorkGroup& group,
                                             const Storage& storage) {
  for (const CacheTensor tensor : {CacheTensor::kKeys, CacheTensor::kValues}) {
    const CodecSetting& setting = storage.of(tensor);
    for (const auto& [name, value] : setting.params.entries()) {
      const auto* file = std::get_if<CalibrationParameter>(&value);
      if (file == nullptr) continue;
      auto found = misfit_of_calibration(*file->content, name, dump, group,
                                         calibrated_by(*setting.codec), setting.params);
      if (found) return StorageMisfit{std::move(*found), file->path};
    }
  }
  return std::nullopt;
}

}  // namespace kvbench
