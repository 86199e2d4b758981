#!/usr/bin/env bash
# tests/fuzz/run.sh [--fast] [TARGET [OPTIONS]]: libFuzzer on all targets, or on one, under sanitizers. --fast: without
# them, and AFL++ on what HDF5 reads: on a damaged file HDF5 itself crashes or never ends once in some
# hundred inputs, and a process that AFL++ forks is given 50 ms.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"

with_libfuzzer() {
  local target=$1 preset=$2
  shift 2
  [[ $# != 0 ]] || set -- -runs=1000000
  cmake --preset "$preset" >&2
  cmake --build --preset "$preset" --target "fuzz-$target" >&2
  "build-$preset/bin/fuzz-$target" -max_len=32768 -timeout=10 -malloc_limit_mb=1024 \
    -artifact_prefix="build-fuzz/found/$target/" "$@" \
    "build-fuzz/grown/$target" "tests/fuzz/corpus/$target"
}

# Goes on where an earlier run stopped. HDF5 clears half a MiB for each file that it opens: the heap keeps
# that, where the system would map it anew.
with_afl() {
  local target=$1
  shift
  [[ $# != 0 ]] || set -- -E 1000000
  cmake --preset afl >&2
  cmake --build --preset afl --target "fuzz-$target" >&2
  mkdir -p build-fuzz/afl
  AFL_AUTORESUME=1 AFL_SKIP_CPUFREQ=1 AFL_NO_AFFINITY=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 \
    GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864 \
    afl-fuzz -i "tests/fuzz/corpus/$target" -o "build-fuzz/afl/$target" -m none -t 50 "$@" \
    -- "build-afl/bin/fuzz-$target"
  cp "build-fuzz/afl/$target"/default/queue/id:* "build-fuzz/grown/$target/"
  find "build-fuzz/afl/$target"/default/{crashes,hangs} -name 'id:*' -exec cp -t "build-fuzz/found/$target" {} +
}

fast=
if [[ ${1:-} == --fast ]]; then
  fast=-fast
  packages+=(afl++)
  shift
fi
packages+=("${clang_packages[@]}")
deps
targets=(sweep bounds journal dump cache results)
if [[ $# != 0 ]]; then
  targets=("$1")
  shift
fi
for target in "${targets[@]}"; do
  mkdir -p "build-fuzz/grown/$target" "build-fuzz/found/$target"
  if [[ -n $fast && $target =~ ^(dump|cache)$ ]]; then
    with_afl "$target" "$@"
  else
    with_libfuzzer "$target" "fuzz$fast" "$@"
  fi
done
