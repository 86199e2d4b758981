#!/usr/bin/env bash
# plots/reading.sh MODEL TEXT ..: configs/pieces.json on SmolLM2's GGUF and texts of data/dumps.sh, each read whole and in
# pieces of 256 tokens, with 1024 tokens of which the last 128 are decoded, into results/reading. A text takes five minutes
# of a core. It resumes after an interruption.
(($# > 1)) || { echo "give a model and texts" >&2 && exit 2; }
model=$(realpath "$1") texts=("${@:2}")
mapfile -t texts < <(realpath "${texts[@]}")
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
build
environment .venv-model model && install_package .venv-model || die ".venv-model is not there; a closed loop needs it"
plots_environment
for text in "${texts[@]}"; do
  name=$(basename "$text" .txt)
  for pieces in whole 256; do
    option=() out=results/reading/$pieces/$name
    if [[ $pieces != whole ]]; then
      option=(--prompt-pieces "$pieces")
      mkdir -p "$out"
      cp --no-clobber --link results/reading/whole/"$name"/model.{h5,json} "$out"  # both ways read one dump
    fi
    .venv-model/bin/python data/closed_loop.py "$model" --text "$text" --tokens 1024 --config configs/pieces.json \
      --decisions live --out "$out" "${option[@]}"
  done
done
.venv/bin/python -m kvplot pieces results/reading/*/*/loop.json --out results/reading
say "reading: $SECONDS s, in results/reading"
