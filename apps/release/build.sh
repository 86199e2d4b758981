#!/usr/bin/env bash
# apps/release/build.sh [OPTIONS]: wheel and source archive of the commit, and SHA256SUMS, in build-release; OPTIONS
# are those of apps/release/release.py.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
[[ -z $(git status --porcelain) ]] || die "the tree has changes; commit them"
apps/python/wheel.sh
rm -rf build-release
python3 apps/release/release.py --out build-release "$@" build-wheel/*.whl >&2
say "release: $PWD/build-release"
