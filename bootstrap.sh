#!/usr/bin/env bash
# From a bare Debian 12 or 13 to a result:
#   ./bootstrap.sh demo      install what is missing, build, replay the shipped dump, draw the figure
#                            and a page to explore: results/quick/report.html
#   ./bootstrap.sh test      the quick tests, which show that the build is right
#   ./bootstrap.sh test full the tests that CI runs on every change; .ci/nightly: the rest
#
#   ./bootstrap.sh deps [model]          Debian's packages and .venv; model: .venv-model, with torch (6 GB)
#   ./bootstrap.sh build                 build/bin/kvbench
#   ./bootstrap.sh check NAME [OPTIONS]  tests/NAME alone, in the build that compiles fastest; OPTIONS are
#                                        doctest's (-tc='*shift*')
#   ./bootstrap.sh lint [all|--fix]      formats, Python's lint and types, subjects of commits, clang-tidy
#
# . .venv/bin/activate puts kvbench, kvplot and a Python with h5py on PATH. Each script below explains itself
# in its first lines:
#   data/dumps.sh          dumps of two models on ten texts    plots/texts.sh          sweeps over these dumps
#   data/loop.sh           the closed loop                     plots/figures.sh        the papers' figures
#   apps/site/build.sh     these pages as a site               apps/python/wheel.sh    a wheel
#   apps/release/build.sh  a release                           tests/generate.sh       tables of pages, messages
#   tests/bench/run.sh     benchmarks                          tests/sanitize.sh       sanitizers
#   tests/cuda/run.sh      the CUDA side                       tests/slurm/run.sh      a Slurm of one node
#   tests/python/run.sh    the Python package's tests          tests/exporter/run.sh   the exporter's tests
#   tests/loop/run.sh      the closed loop's tests             tests/peers/run.sh      kvpress and others' codecs
#   tests/install/container.sh  the images
# KVBENCH_SKIP_DEPS=1 installs no packages; CMake then reports missing ones.
# KVBENCH_CUDA=ON compiles the CUDA kernels on a machine without a driver too; OFF never.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

demo() {
  deps
  plots_environment &
  build
  wait $!
  build/bin/kvbench run --config configs/quick.json
  .venv/bin/python -m kvplot error_vs_memory --results results/quick/results.json --out results/quick &
  .venv/bin/python -m kvplot report results/quick/results.json --out results/quick/report.html
  wait $!
  say "a page to explore these results, in any browser: $PWD/results/quick/report.html"
}

# Tests of a tier, `quick` or `full`, that of the quick ones included; further arguments are ctest's.
run_tests() {
  local tier=quick targets=quick-tests labels='^quick$' began=$SECONDS status=0
  if [[ ${1:-} == quick || ${1:-} == full ]]; then
    tier=$1
    shift
  fi
  if [[ $tier == full ]]; then
    targets=all labels='^(quick|full)$'
    install_package .venv-tools
  fi
  build $targets
  plots_environment
  ctest --test-dir build --output-on-failure --parallel "$(nproc)" --label-regex "$labels" "$@" || status=$?
  skipped_tests build
  say "test: tier $tier, $(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s with the build;" \
    "$([[ $tier == full ]] || echo 'more: ./bootstrap.sh test full (what CI runs), ')the rest: .ci/nightly"
  return $status
}

# One folder of tests.
check() {
  local name=${1:-} folders targets
  folders=$(cd tests && printf '%s ' */CMakeLists.txt)
  [[ -n $name && -f tests/$name/CMakeLists.txt ]] ||
    die "check: expected a folder of tests, got '$name'; there are ${folders//\/CMakeLists.txt/}"
  shift
  deps
  configure dev
  targets=("tests/$name/all")
  if compgen -G "tests/$name/*_test.py" >/dev/null; then
    plots_environment
    targets+=(kvbench)
  fi
  cmake --build --preset dev --target "${targets[@]}" >&2
  if [[ $# == 0 ]]; then
    ctest --test-dir "build-dev/tests/$name" --output-on-failure --no-tests=error
    skipped_tests "build-dev/tests/$name"
  elif [[ -x build-dev/bin/test-$name ]]; then
    "build-dev/bin/test-$name" "$@"
  else
    die "check: tests/$name has no doctest program to give $* to"
  fi
}

# The comment that this file begins with.
usage() { sed -n '2,/^\. /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]##*/}"; }

verb=${1:-}
[[ $# == 0 ]] || shift
case $verb in
  deps)
    deps
    plots_environment
    if [[ ${1:-} == model ]]; then environment .venv-model model; fi
    ;;
  build) build ;;
  demo) demo ;;
  test) run_tests "$@" ;;
  check) check "$@" ;;
  lint) tests/lint/run.sh "$@" ;;
  help | --help | -h) usage ;;
  *)
    [[ -z $verb ]] || say "bootstrap.sh: unknown verb $verb"
    usage >&2
    exit 2
    ;;
esac
