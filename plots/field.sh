#!/usr/bin/env bash
# plots/field.sh [FOLDER [PASSES]]: the field in two modes over the dumps that `data/dumps.sh FOLDER --all-layers` made,
# into results/field. Per model and mode: field.csv and families.csv, which plots/tables has.
# In each pass a text has three of SmolLM2's 30 layers, another three in the next one; 10 passes are all of them. A pass
# takes 8 minutes of a core, Gemma's three layers MINUTES. It resumes after an interruption. Default: one pass.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")/all_layers
passes=${2:-1}
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
compgen -G "$folder/*-*.h5" >/dev/null || die "$folder has no dump; data/dumps.sh FOLDER --all-layers makes them"
[[ $passes =~ ^([1-9]|10)$ ]] || die "$passes passes: give a number from 1 to 10"
build
plots_environment
# The order decides which layers a text has.
texts=(us-constitution tom-sawyer python-source opticks debian-policy perl-intro devils-dictionary jargon-file
  debian-constitution python-classes)
for model in smollm2-135m gemma3-270m; do
  compgen -G "$folder/$model-*.h5" >/dev/null || { say "$folder has no dump of $model; it is left out" && continue; }
  only=()
  if [[ $model == smollm2-135m ]]; then
    for place in "${!texts[@]}"; do
      for ((layer = place; layer < place + passes; ++layer)); do
        for first in 0 10 20; do only+=(--only "*/*/${texts[place]}/$((layer % 10 + first))/*"); done
      done
    done
  fi
  for mode in published equalised; do
    say "running configs/field_$mode.json on $model"
    build/bin/kvbench run --config "configs/field_$mode.json" --out "results/field/$model/$mode" --quiet \
      --set "/dumps=[\"$folder/$model-*.h5\"]" "${only[@]}"
  done
  .venv/bin/python -m kvplot field_modes "results/field/$model" --out "results/field/$model"
done
say "field: $SECONDS s, in results/field"
