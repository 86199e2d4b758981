#!/usr/bin/env bash
# tests/fuzz/run.sh [--fast] [TARGET [OPTIONS]]: libFuzzer on all targets, or on one, under sanitizers. --fast: without
# them.
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

fast=
if [[ ${1:-} == --fast ]]; then
  fast=-fast
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
  with_libfuzzer "$target" "fuzz$fast" "$@"
done
