#!/usr/bin/env bash
# plots/anchors.sh [FOLDER]: configs/anchors.json over dumps of all layers of SmolLM2 and Qwen2.5-Coder 0.5B, and of
# Gemma's three of full attention, in FOLDER/all_layers or the cache, which data/dumps.sh made, into
# results/anchors/MODEL: the last 64 tokens decoded.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")/all_layers
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
compgen -G "$folder/*-*.h5" >/dev/null || die "$folder has no dump; data/dumps.sh FOLDER --all-layers makes them"
build
plots_environment
for model in smollm2-135m qwen2.5-coder-0.5b gemma3-270m; do
  compgen -G "$folder/$model-*.h5" >/dev/null || {
    say "$folder has no dump of $model (data/dumps.sh FOLDER --all-layers); it is left out"
    continue
  }
  out=results/anchors/$model rank=16
  if [[ $model == gemma3-270m ]]; then rank=64; fi  # a quarter of a head's dimensions
  build/bin/kvbench run --config configs/anchors.json --out "$out" --quiet --set "/dumps=[\"$folder/$model-*.h5\"]" \
    --set "/algorithms/5/params/rank=$rank"
  .venv/bin/python -m kvplot anchors "$out/results.json" --out "$out"
done
say "anchors: $SECONDS s, in results/anchors"
