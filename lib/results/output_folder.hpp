// Whose an output folder is: locks against other programs, and results of other sweeps.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sweep/plan.hpp"
#include "system/file_lock.hpp"

namespace kvbench {

// Locks an output folder against other runs and merges. Throws InputError if one of them is at work
// in it, or if its file system cannot lock files and `may_go_without` is false; IoError if the
// folder cannot be written.
std::unique_ptr<FileLock> lock_run_folder(const std::string& folder, bool may_go_without);

// Waits until no other program writes `file` and locks it; `waiting` is called once if it has to
// wait. Throws as lock_run_folder(), and Stopped.
std::unique_ptr<FileLock> lock_written_file(const std::string& file, bool may_go_without,
                                            const std::function<void()>& waiting);

// Throws InputError if the results file at `path` has finished cells that `plan` lacks: a file of
// the plan would lose them. `remedy` ends the message. A file that cannot be read has no results to
// lose.
void refuse_other_results(const std::string& path, const Plan& plan, const std::string& remedy);

// Keeps the results file at `path`, if it is of another plan, as NAME-HASH.json next to it, HASH
// the first digits of that plan's hash; returns that name, or nothing.
std::string keep_other_results(const std::string& path, const Plan& plan);

}  // namespace kvbench
