# Builds and runs of tests, for bootstrap.sh and the scripts next to the tests; environment.sh sources it.
# shellcheck shell=bash

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

# The program, or other targets of the release build.
build() {
  deps
  configure release
  cmake --build --preset release --target "${@:-kvbench}" >&2
}

# The Python package in the environments given, made of the objects of the program's build.
install_package() {
  local folder
  deps
  configure release
  for folder in "$@"; do
    environment "$folder" package
    say "installing kvbench into $folder"
    "$folder/bin/python" -m pip install --quiet --no-deps --no-build-isolation --force-reinstall . >&2
  done
}

# Tests that the last ctest of a build left out although their program ran: every reason with its tests.
skipped_tests() {
  awk '
    /^[0-9]+\/[0-9]+ Test(ing)?: / { test = $NF }
    / \.\.\. skipped / { sub(/.* \.\.\. skipped /, ""); count[test ": " $0]++ }
    END { for (what in count) printf "skipped in %s (%d)\n", what, count[what] }
  ' "$1/Testing/Temporary/LastTest.log" | sort >&2
}

# tests/FOLDER of data/*.py, by the Python of the environment $2; tiny models are those of tests/exporter.
# Further arguments are unittest's.
data_tests() {
  local folder=$1 venv=$2
  shift 2
  KVBENCH_PROGRAM=$PWD/build/bin/kvbench PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/data:$PWD/tests/exporter \
    "$venv/bin/python" -m unittest discover -v -s "tests/$folder" -p '*_test.py' "$@"
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

# The first lines of the script, and the help of the program $1 that its arguments go to; that takes numpy and
# h5py, and no environment is made for it.
explain() {
  local python
  sed -n '2,/^\. /{/^#/s/^# \{0,1\}//p}' "$script"
  for python in .venv/bin/python /usr/bin/python3 python3; do
    if "$python" -B -c 'import h5py, numpy' 2>/dev/null; then exec "$python" -B "$1" --help; fi
  done
  exit
}
