#!/usr/bin/env bash
# plots/prefill.sh [FOLDER]: configs/prefill.json over the dumps of SmolLM2 and Qwen2.5-Coder 0.5B (--only 'qwen*') that
# data/dumps.sh made in FOLDER or the cache, in four layers of each, into results/prefill.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
compgen -G "$folder/smollm2-135m-*.h5" >/dev/null || die "$folder has no dump of SmolLM2; data/dumps.sh makes them"
build
plots_environment
# The third of the layers has exact masses and blocks of 64, too: entries 0, 9 and 10 of the sweep.
for model in smollm2-135m:0,7,15,29 qwen2.5-coder-0.5b:0,6,12,23; do
  IFS=: read -r model layers <<<"$model"
  compgen -G "$folder/$model-*.h5" >/dev/null || continue
  IFS=, read -r _ _ middle _ <<<"$layers"
  build/bin/kvbench run --config configs/prefill.json --out "results/prefill/$model" --quiet \
    --set "/dumps=[\"$folder/$model-*.h5\"]" --set "/select/layers=[$layers]" \
    "--set=/algorithms/"{0,9,10}"/where/layers=[$middle]"
  .venv/bin/python -m kvplot prefill "results/prefill/$model/results.json" --out "results/prefill/$model"
done
say "prefill: $SECONDS s, in results/prefill"
