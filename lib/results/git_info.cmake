# Run at every build: writes OUTPUT (a header with the commit of SOURCE) where it changed.
cmake_minimum_required(VERSION 3.25)
set(commit "")
set(dirty false)
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse HEAD WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  else()
    execute_process(COMMAND ${GIT_EXECUTABLE} status --porcelain --untracked-files=no
      WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changes ERROR_QUIET)
    if(NOT changes STREQUAL "")
      set(dirty true)
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "// Generated at build time.
#pragma once

namespace kvbench::git_info {

inline constexpr const char* kCommit = \"@commit@\";
inline constexpr bool kDirty = @dirty@;

}  // namespace kvbench::git_info
")
