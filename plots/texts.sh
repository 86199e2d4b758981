#!/usr/bin/env bash
# plots/texts.sh [FOLDER]: sweeps over the dumps that data/dumps.sh made in FOLDER or the cache, into results/texts:
# intervals over texts. Model by model, since a text that two models read is not two texts; a model without dumps is
# left out. Gemma's sliding layers are left out, because their memory depends on the data.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
compgen -G "$folder/*-*.h5" >/dev/null || die "$folder has no dump; data/dumps.sh makes them"
build
plots_environment
program=build/bin/kvbench out=results/texts
for model in smollm2-135m gemma3-270m qwen2.5-coder-{0.5b,1.5b}; do
  if ! compgen -G "$folder/$model-*.h5" >/dev/null; then
    say "$folder has no dump of $model; it is left out"
    continue
  fi
  layers='"all"'
  if [[ $model == gemma3-270m ]]; then layers='[5,17]'; fi
  for config in configs/figures/{scaling,recency,methods,storage,bits,reading,density}.json configs/field.json; do
    results=$out/$model/$(basename "$config" .json)/results.json
    newer "$results" "$config" "$program" "$folder/$model"-*.h5 && continue
    # The two largest sweeps have one seed: texts and heads say more than draws do (plots/FINDINGS.md).
    seeds=()
    case $config in */field.json | */reading.json) seeds=(--set '/seeds=[0]') ;; esac
    say "running $config on $model"
    "$program" run --config "$config" --out "$(dirname "$results")" --quiet \
      --set "/dumps=[\"$folder/$model-*.h5\"]" --set "/select/layers=$layers" "${seeds[@]}"
  done
  .venv/bin/python -m kvplot papers --runs "$out/$model" --out "$out/$model" \
    --only scaling recency mixture variance methods storage bits keys_or_values reading reading_paired density field
done
say "texts: $SECONDS s, in $out"
