# Run at every build: writes OUTPUT (a header with the commit of SOURCE) where it changed. The commit is that
# of SOURCE's own checkout, not of one that SOURCE lies in; without a checkout the one in SOURCE/.commit,
# which `git archive` fills in, if there is any.
cmake_minimum_required(VERSION 3.25)
set(commit "")
set(dirty false)
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --show-prefix HEAD WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND said MATCHES "^\n([0-9a-f]+)\n$")  # the prefix is empty at the top of a checkout
    set(commit "${CMAKE_MATCH_1}")
    execute_process(COMMAND ${GIT_EXECUTABLE} status --porcelain --untracked-files=no
      WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changes ERROR_QUIET)
    if(NOT changes STREQUAL "")
      set(dirty true)
    endif()
  endif()
endif()
if(commit STREQUAL "" AND EXISTS ${SOURCE}/.commit)
  file(STRINGS ${SOURCE}/.commit commit LIMIT_COUNT 1 REGEX "^[0-9a-f]+$")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "// Generated at build time.
#pragma once

namespace kvbench::git_info {

inline constexpr const char* kCommit = \"@commit@\";
inline constexpr bool kDirty = @dirty@;

}  // namespace kvbench::git_info
")
