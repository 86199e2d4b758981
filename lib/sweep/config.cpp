#include "sweep/config.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/pair_names.hpp"
#include "json/pointer.hpp"
#include "sweep/parameter_columns.hpp"

namespace kvbench {

Index SweepEntry::points() const { return points_of(axes); }

Params SweepEntry::point(Index i) const { return point_of(axes, algorithm->parameters, i); }

std::string SweepEntry::place_of(const std::string& name) const {
  std::string then = child(pointer, "then");
  if (composition && name == "then") return then;
  const auto of_reader = composition ? name_in_reader(name) : std::nullopt;
  return child(child(of_reader ? then : pointer, "params"), of_reader.value_or(name));
}

bool SweepEntry::names_files() const {
  return std::any_of(axes.begin(), axes.end(), [](const auto& axis) {
    return std::holds_alternative<CacheParameter>(axis.second.front());
  });
}

void SweepEntry::each_codec(const std::function<void(const CodecSetting&)>& visit) const {
  for (const auto& storage : storages) {
    if (storage) each_setting(*storage, visit);
  }
}

double SweepEntry::cells(std::size_t seeds) const {
  const double all = points();
  const double seeded = seeded_points;
  const double per_seed = seeds;
  double sum = 0.0;
  for (const auto& storage : storages) {
    sum += storage && storage->is_randomised() ? all * per_seed : all - seeded + seeded * per_seed;
  }
  return sum;
}

template <class Content>
std::vector<std::string> SweepConfig::paths_of() const {
  std::vector<std::string> paths;
  std::set<std::string> seen;
  const auto add = [&](const Value& value) {
    const auto* file = std::get_if<FileParameter<Content>>(&value);
    if (file != nullptr && seen.insert(file->path).second) paths.push_back(file->path);
  };
  for (const SweepEntry& entry : entries) {
    for (const auto& [name, values] : entry.axes) {
      for (const Value& value : values) add(value);
    }
    entry.each_codec([&](const CodecSetting& setting) {
      for (const auto& [name, value] : setting.params.entries()) add(value);
    });
  }
  return paths;
}

template <class Content>
void SweepConfig::set_files(const std::vector<std::shared_ptr<const Content>>& files) {
  std::map<std::string, std::shared_ptr<const Content>> by_path;
  for (const auto& file : files) by_path[file->path] = file;
  const auto open = [&](Value& value) {
    auto* file = std::get_if<FileParameter<Content>>(&value);
    const auto found = file != nullptr ? by_path.find(file->path) : by_path.end();
    if (found != by_path.end()) file->content = found->second;
  };
  const auto open_params = [&](CodecSetting& setting) {
    const Params before = setting.params;
    for (auto [name, value] : before.entries()) {
      open(value);
      setting.params.set(name, std::move(value));
    }
  };
  // Entries go on sharing their storages.
  std::map<std::shared_ptr<const Storage>, std::shared_ptr<const Storage>> opened;
  for (SweepEntry& entry : entries) {
    for (auto& [name, values] : entry.axes) {
      for (Value& value : values) open(value);
    }
    for (std::shared_ptr<const Storage>& storage : entry.storages) {
      if (!storage) continue;
      std::shared_ptr<const Storage>& with_files = opened[storage];
      if (!with_files) {
        with_files = std::make_shared<const Storage>(with_settings(*storage, open_params));
      }
      storage = with_files;
    }
  }
}

template std::vector<std::string> SweepConfig::paths_of<KeptCache>() const;
template std::vector<std::string> SweepConfig::paths_of<Calibration>() const;
template void SweepConfig::set_files(const std::vector<std::shared_ptr<const KeptCache>>&);
template void SweepConfig::set_files(const std::vector<std::shared_ptr<const Calibration>>&);

}  // namespace kvbench
