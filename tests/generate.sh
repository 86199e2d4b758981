#!/usr/bin/env bash
# tests/generate.sh [KVBENCH]: the tables of lib/algorithms/ALGORITHMS.md and VERIFIED.md, lib/storage/README.md
# and configs/RESULTS.md, and the recorded messages (tests/cli/bad_inputs/messages.txt), as the program
# prints them; that of the build, if none is given. tests/support/known_methods.py adds what their code lacks.
program=${1:+$(realpath "$1")}
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"

# Puts what the command $2.. prints in place of the table with that head in the page $1.
table_of() {
  local page=$1 table
  shift
  table=$("$@")
  TABLE=$table HEAD=${table%%$'\n'*} awk '
    $0 == ENVIRON["HEAD"] { print ENVIRON["TABLE"]; in_table = 1 }
    !/^\|/ { in_table = 0 }
    !in_table' "$page" >"$page.new"
  mv "$page.new" "$page"
}

if [[ -z $program ]]; then
  build
  program=$PWD/build/bin/kvbench
fi
table_of configs/RESULTS.md "$program" list metrics --markdown
table_of configs/RESULTS.md "$program" list derived --markdown
# The system's python3, as in CMake: without its h5py the tables of damaged files are left out.
python=/usr/bin/python3
[[ -x $python ]] || python=python3
for table in verified verified-codecs not-in-field; do
  table_of lib/algorithms/VERIFIED.md "$python" -B tests/support/known_methods.py $table
done
table_of lib/algorithms/ALGORITHMS.md "$python" -B tests/support/known_methods.py algorithms "$program"
table_of lib/storage/README.md "$python" -B tests/support/known_methods.py codecs "$program"
KVBENCH_UPDATE_MESSAGES=1 KVBENCH_PROGRAM=$program KVBENCH_SOURCE=$PWD "$python" tests/cli/bad_input_test.py
