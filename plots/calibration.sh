#!/usr/bin/env bash
# plots/calibration.sh [FOLDER]: configs/calibration.json, calibrated on the prompt, on each of the next three texts and
# on all other texts, over the dumps of SmolLM2 and Qwen2.5-Coder 0.5B in FOLDER or the cache and Gemma's in
# FOLDER/all_layers, which data/dumps.sh made. The last 64 tokens are decoded; tables are in results/calibration. Ten
# texts of SmolLM2 take 8 minutes of a core, Gemma's were not timed. It resumes after an interruption.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
build
plots_environment
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
prompt=1984
# Entries of the sweep that are calibrated: the method, and the parameters that its numbers depend on.
methods=(qfilters expected_attention loki loki)
params=('{}' '{"sinks":32}' '{}' '{"basis":"channels"}')

for model in smollm2-135m gemma3-270m qwen2.5-coder-0.5b; do
  place=$folder out=$PWD/results/calibration/$model rank=16
  if [[ $model == gemma3-270m ]]; then place=$folder/all_layers rank=64; fi  # a quarter of a head's dimensions
  dumps=("$place/$model"-*.h5)
  if [[ ! -f ${dumps[0]} ]]; then
    say "$place has no dump of $model; it is left out"
    continue
  fi
  ((${#dumps[@]} > 1)) || die "$place has one dump of $model; give it two or more texts"
  for i in "${!methods[@]}"; do
    for dump in "${dumps[@]}"; do
      others=()
      for each in "${dumps[@]}"; do [[ $each == "$dump" ]] || others+=("$each"); done
      for kind in one others; do
        file=$out/files/$i/$kind/$(basename "$dump" .h5).cal.h5
        mkdir -p "$(dirname "$file")"
        own=("$dump")
        if [[ $kind == others ]]; then own=("${others[@]}"); fi
        newer "$file" "${own[@]}" || build/bin/kvbench calibrate --method "${methods[i]}" --params "${params[i]}" \
          --tokens $prompt --out "$file" --dump "${own[@]}" >&2
      done
    done
  done
  for at in "${!dumps[@]}"; do
    dump=${dumps[at]}
    name=$(basename "$dump" .h5)
    set=()
    for i in "${!methods[@]}"; do
      files='"prompt"'
      for next in 1 2 3; do
        each=${dumps[(at + next) % ${#dumps[@]}]}
        [[ $each == "$dump" ]] || files+=",\"$out/files/$i/one/$(basename "$each" .h5).cal.h5\""
      done
      files+=",\"$out/files/$i/others/$name.cal.h5\""
      set+=(--set "/algorithms/$i/params/calibration=[$files]")
      [[ ${methods[i]} != loki ]] || set+=(--set "/algorithms/$i/params/rank=$rank")
    done
    build/bin/kvbench run --config configs/calibration.json --out "$out/$name" --quiet --threads 1 \
      --set "/dumps=[\"$dump\"]" --set "/algorithms/6/params/rank=$rank" "${set[@]}"
  done
  .venv/bin/python -m kvplot calibration "$out"/*/results.json --out "$out"
done
say "calibration: $SECONDS s, in results/calibration"
