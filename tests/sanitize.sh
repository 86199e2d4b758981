#!/usr/bin/env bash
# tests/sanitize.sh [WHICH]: tests under clang's sanitizers. By default address and undefined behaviour over what reads
# and writes files and what computes, then threads over what runs on several: what fits into CI.
# `address` or `thread`: one of them. `all`: every test that is neither slow nor statistical, and the whole
# program on several threads. `python`: the Python package, in a Python that has loaded the runtime.
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
packages+=("${clang_packages[@]}")
deps

# Leaks are not looked for: the interpreter's own would be found.
sanitize_python() {
  environment .venv-tools package
  local python=$PWD/.venv-tools/bin/python runtime linked test failed=0
  runtime=$("clang-$llvm" -print-file-name=libclang_rt.asan-x86_64.so)
  linked="-shared-libasan -Wl,-rpath,${runtime%/*}"
  cmake --preset sanitize-python -DPython_EXECUTABLE="$python" -DKVBENCH_PYTHON="$python" \
    -DCMAKE_EXE_LINKER_FLAGS="$linked" -DCMAKE_MODULE_LINKER_FLAGS="$linked" >&2
  cmake --build --preset sanitize-python --target kvbench_python >&2
  for test in caches dumps interrupt method_failures method_runs methods processor replay run; do
    say "$test"
    LD_PRELOAD="$runtime $(gcc -print-file-name=libstdc++.so.6)" \
      ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1 \
      KVBENCH_BUILD=$PWD/build-sanitize-python KVBENCH_PROGRAM=$PWD/build-sanitize-python/bin/kvbench \
      KVBENCH_SOURCE=$PWD PYTHONDONTWRITEBYTECODE=1 \
      PYTHONPATH=$PWD/build-sanitize-python/python:$PWD/plots:$PWD/tests/python \
      "$python" "tests/python/${test}_test.py" >&2 || failed=1
  done
  return $failed
}

which=${1:-both}
if [[ $which == python ]]; then
  sanitize_python
  exit
fi
address=(kvbench test-{dump,json,kernels,metrics,replay,results,run,sketch,sweep})
thread=(test-{conformance,kernels,replay})
address_tests='^(cli_commands|cli_failing_place|dump|json|kernels|metrics|replay|results|run|sketch|sweep)$'
thread_tests='^(conformance_threads|kernels|replay)$'
if [[ $which == all ]]; then
  address=(all) address_tests=.
  thread+=(test-{results,run} kvbench) thread_tests=.
fi
if [[ $which != thread ]]; then
  cmake --preset sanitize >&2
  cmake --build --preset sanitize --target "${address[@]}" >&2
  ctest --preset sanitize --tests-regex "$address_tests" --parallel "$(nproc)"
fi
if [[ $which != address ]]; then
  cmake --preset tsan >&2
  cmake --build --preset tsan --target "${thread[@]}" >&2
  ctest --preset tsan --tests-regex "$thread_tests" --parallel "$(nproc)"
fi
