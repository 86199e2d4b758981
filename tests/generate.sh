#!/usr/bin/env bash
# tests/generate.sh [KVBENCH]: the tables of lib/algorithms/ALGORITHMS.md, lib/storage/README.md and
# configs/RESULTS.md, and the recorded messages (tests/cli/bad_inputs/messages.txt), as the program
# prints them; that of the build, if none is given.
program=${1:+$(realpath "$1")}
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"

# Puts `list $1 --markdown` in place of the table with that head in the page $2.
listed_table() {
  local table
  table=$("$program" list "$1" --markdown)
  TABLE=$table HEAD=${table%%$'\n'*} awk '
    $0 == ENVIRON["HEAD"] { print ENVIRON["TABLE"]; in_table = 1 }
    !/^\|/ { in_table = 0 }
    !in_table' "$2" >"$2.new"
  mv "$2.new" "$2"
}

if [[ -z $program ]]; then
  build
  program=$PWD/build/bin/kvbench
fi
listed_table algorithms lib/algorithms/ALGORITHMS.md
listed_table storage lib/storage/README.md
listed_table metrics configs/RESULTS.md
listed_table derived configs/RESULTS.md
# The system's python3, as in CMake: without its h5py the tables of damaged files are left out.
python=/usr/bin/python3
[[ -x $python ]] || python=python3
KVBENCH_UPDATE_MESSAGES=1 KVBENCH_PROGRAM=$program KVBENCH_SOURCE=$PWD "$python" tests/cli/bad_input_test.py
