#!/usr/bin/env bash
# plots/anchors.sh [FOLDER]: configs/anchors.json over dumps of all layers of SmolLM2, in FOLDER/all_layers or the cache,
# which data/dumps.sh made, into results/anchors: the last 64 tokens decoded.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")/all_layers
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
compgen -G "$folder/smollm2-135m-*.h5" >/dev/null || die "$folder has no dump of SmolLM2; data/dumps.sh makes them"
build
plots_environment
build/bin/kvbench run --config configs/anchors.json --out results/anchors --quiet \
  --set "/dumps=[\"$folder/smollm2-135m-*.h5\"]"
.venv/bin/python -m kvplot anchors results/anchors/results.json --out results/anchors
say "anchors: $SECONDS s, in results/anchors"
