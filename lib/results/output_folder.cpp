#include "results/output_folder.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "json/json.hpp"
#include "results/plan_index.hpp"
#include "results/read_results.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/hash.hpp"
#include "system/shortened.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

void check_support(const FileLock& lock, bool may_go_without) {
  if (lock.unsupported().empty() || may_go_without) return;
  throw InputError(lock.unsupported() +
                   "; this file system cannot lock files, and two programs that write one folder "
                   "would damage its files: choose another --out, or make sure that no other run "
                   "or merge writes here and give --no-lock");
}

// The hash of the plan that a results file is of; empty if it has none.
std::string hash_in(const Json& results) {
  const Json plan = results.value("plan", Json());
  const Json hash = plan.is_object() ? plan.value("hash", Json()) : Json();
  if (!hash.is_string() || !Key128::from_text(hash.get<std::string>())) return "";
  return hash;
}

}  // namespace

std::unique_ptr<FileLock> lock_run_folder(const std::string& folder, bool may_go_without) {
  auto lock = std::make_unique<FileLock>(folder + "/journal.lock", FileLock::After::kKeepFile);
  check_support(*lock, may_go_without);
  if (lock->is_held() || !lock->unsupported().empty()) return lock;
  throw InputError(folder +
                   ": another kvbench run is writing to this folder; wait for it, or choose "
                   "another --out");
}

std::unique_ptr<FileLock> lock_written_file(const std::string& file, bool may_go_without,
                                            const std::function<void()>& waiting) {
  constexpr std::chrono::milliseconds kAgain{20};
  for (bool is_first = true;; is_first = false) {
    auto lock = std::make_unique<FileLock>(file + ".lock", FileLock::After::kRemoveFile);
    check_support(*lock, may_go_without);
    if (lock->is_held() || !lock->unsupported().empty()) return lock;
    if (is_first) waiting();
    throw_if_stopped();
    std::this_thread::sleep_for(kAgain);
  }
}

void refuse_other_results(const std::string& path, const Plan& plan, const std::string& remedy) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  const PlanIndex index(plan);
  std::size_t lost = 0;
  Json results;
  try {
    results = read_results(path, {.cell = [&](Json&& cell) {
                             if (!cell.is_object() || cell.value("status", Json()) != "ok") return;
                             const Json id = cell.value("id", Json());
                             lost += id.is_string() && !index.find(id.get<std::string>()) ? 1 : 0;
                           }});
  } catch (const InputError&) {
    return;
  }
  if (lost == 0) return;
  throw InputError(fmt::format("{}: has {} finished cells of another sweep, {}; {}", path, lost,
                               shortened(to_line(results.value("name", Json()))), remedy));
}

std::string keep_other_results(const std::string& path, const Plan& plan) {
  constexpr std::size_t kDigits = 8;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::string hash;
  try {
    hash = hash_in(read_results(path, ResultsParts{}));
  } catch (const InputError&) {
    return "";
  }
  if (hash.empty() || hash == plan.hash) return "";
  const std::string kept = fmt::format("{}-{}.json", fs::path(path).replace_extension().string(),
                                       hash.substr(0, kDigits));
  fs::rename(path, kept, error);
  if (error) throw IoError(write_error(kept, "write", error.value()));
  return kept;
}

}  // namespace kvbench
