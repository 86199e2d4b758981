#!/usr/bin/env bash
# plots/paging.sh [FOLDER [OUT]]: configs/paging.json over the dumps of SmolLM2 and Qwen2.5-Coder 0.5B in FOLDER or the
# cache and Gemma's in FOLDER/all_layers, which data/dumps.sh made, into OUT/MODEL, OUT being results/paging: the last 64
# tokens decoded, then the last 256 with one seed. A text of SmolLM2 takes half a minute of a core for each.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")
results=$(realpath -m "${2:-$(dirname "${BASH_SOURCE[0]}")/../results/paging}")
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
compgen -G "$folder/*-*.h5" >/dev/null || compgen -G "$folder/all_layers/gemma3-*.h5" >/dev/null ||
  die "$folder has no dump; data/dumps.sh makes them"
build
plots_environment
for model in smollm2-135m qwen2.5-coder-0.5b gemma3-270m; do
  place=$folder
  if [[ $model == gemma3-270m ]]; then place=$folder/all_layers; fi
  compgen -G "$place/$model-*.h5" >/dev/null || {
    say "$place has no dump of $model (data/dumps.sh FOLDER, for Gemma with --all-layers); it is left out"
    continue
  }
  seeds=()
  for decoded in 64 256; do
    out=$results/$model/$decoded
    build/bin/kvbench run --config configs/paging.json --out "$out" --quiet \
      --set "/dumps=[\"$place/$model-*.h5\"]" --set "/replay/prompt_tokens=$((2048 - decoded))" "${seeds[@]}"
    .venv/bin/python -m kvplot paging "$out/results.json" --out "$out"
    seeds=(--set '/seeds=[0]')
  done
done
say "paging: $SECONDS s, in $results"
