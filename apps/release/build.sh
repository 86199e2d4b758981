#!/usr/bin/env bash
# apps/release/build.sh: wheel and source archive of the commit, and SHA256SUMS of both, in build-release.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
version=$(<version.txt)
[[ -z $(git status --porcelain) ]] || die "the tree has changes; commit them"
date=$(grep -m1 '^## ' CHANGELOG.md | sed -n "s/^## $version (\([0-9-]\{10\}\))\$/\1/p")
[[ -n $date ]] || die "CHANGELOG.md: its first part must be: ## $version (YYYY-MM-DD)"
grep -qx "version: $version" CITATION.cff && grep -qx "date-released: $date" CITATION.cff ||
  die "CITATION.cff: must have version: $version and date-released: $date"
apps/python/wheel.sh
rm -rf build-release
mkdir build-release
git archive --format=tar --prefix="kvbench-$version/" HEAD | gzip -9n >"build-release/kvbench-$version.tar.gz"
cp build-wheel/*.whl build-release
(cd build-release && sha256sum -- *.tar.gz *.whl >SHA256SUMS)
say "release: $PWD/build-release"
