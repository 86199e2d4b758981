#!/usr/bin/env bash
# plots/paging.sh [FOLDER]: configs/paging.json over SmolLM2's dumps that data/dumps.sh made in FOLDER or the cache,
# into results/paging: the last 64 tokens decoded, then the last 256 with one seed. A text takes half a minute of a core
# for each.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
compgen -G "$folder/smollm2-135m-*.h5" >/dev/null || die "$folder has no dump of SmolLM2; data/dumps.sh makes them"
build
plots_environment
seeds=()
for decoded in 64 256; do
  build/bin/kvbench run --config configs/paging.json --out "results/paging/$decoded" --quiet \
    --set "/dumps=[\"$folder/smollm2-135m-*.h5\"]" --set "/replay/prompt_tokens=$((2048 - decoded))" "${seeds[@]}"
  .venv/bin/python -m kvplot paging "results/paging/$decoded/results.json" --out "results/paging/$decoded"
  seeds=(--set '/seeds=[0]')
done
say "paging: $SECONDS s, in results/paging"
