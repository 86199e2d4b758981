#!/usr/bin/env bash
# apps/site/build.sh [FOLDER [OPTIONS]]: these pages as a site (mkdocs), one page per algorithm and an example report,
# in FOLDER or build-site; OPTIONS are those of apps/site/build.py.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
out=${1:-build-site}
(($# == 0)) || shift
packages+=(mkdocs)
build
plots_environment
.venv/bin/python apps/site/build.py --program build/bin/kvbench --out "$out" "$@"
say "site: $out/index.html; with its search: python3 -m http.server --directory $out"
