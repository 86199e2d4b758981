#!/usr/bin/env bash
# apps/python/wheel.sh: a wheel with all libraries that it needs, for any x86-64 processor with AVX2 and FMA, in
# build-wheel; a test installs it where no compiler is.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
packages+=(debootstrap)
deps
environment .venv-tools package
rm -rf build-wheel
KVBENCH_ARCH=x86-64-v3 KVBENCH_CUDA=OFF .venv-tools/bin/python -m pip wheel . --quiet --no-deps --no-build-isolation \
  --config-settings=build-dir=build-portable --wheel-dir build-wheel/unrepaired >&2
PATH=$PWD/.venv-tools/bin:$PATH auditwheel repair --strip --wheel-dir build-wheel build-wheel/unrepaired/*.whl >&2
.venv-tools/bin/python tests/install/wheel_test.py build-wheel/*.whl
