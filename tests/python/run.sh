#!/usr/bin/env bash
# tests/python/run.sh [OPTIONS]: installs the Python package into .venv-tools and tests it; OPTIONS are ctest's. Its
# tests of tensors take .venv-model's torch, if that is there.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
install_package .venv-tools
build kvbench
ctest --test-dir build --output-on-failure --label-regex '^python$' "$@" && failed=0 || failed=1
skipped_tests build
exit $failed
