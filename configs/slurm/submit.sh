#!/bin/bash
# Submits a sweep and the job that merges it:
#   configs/slurm/submit.sh CONFIG OUT [options of sbatch for the array, such as --partition=long]
# Run again after a failure, it computes only missing cells.
set -euo pipefail

if (($# < 2)); then
  echo "usage: configs/slurm/submit.sh CONFIG OUT [options of sbatch]" >&2
  exit 2
fi
config=$(realpath "$1") out=$2
shift 2
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
kvbench=${KVBENCH:-$PWD/build/bin/kvbench}

mkdir -p "$out/logs"
out=$(realpath "$out")
"$kvbench" plan --config "$config"  # refused here, a faulty sweep costs no place in the queue

array=$(sbatch --parsable --output="$out/logs/%x-%A_%a.log" "$@" \
  "$here/sweep.sbatch" "$config" "$out")
array=${array%%;*}
merge=$(sbatch --parsable --dependency="afterany:$array" --output="$out/logs/%x-%j.log" \
  "$here/merge.sbatch" "$out")
echo "shards: job $array, merge: job ${merge%%;*}, logs: $out/logs, result: $out/results.json"
