#!/usr/bin/env bash
# plots/allocate.sh [FOLDER]: storages that kvbench allocate chooses per layer from errors on five texts, in a model that
# decodes over them on the other five, and the other way round, into results/allocate. Weights and texts are fetched into
# FOLDER/inputs. It resumes after an interruption.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")
inputs=$folder/inputs
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
build
environment .venv-model model && install_package .venv-model || die ".venv-model is not there; a closed loop needs it"
plots_environment
halves=("us-constitution python-source opticks tom-sawyer perl-intro"
  "devils-dictionary jargon-file debian-constitution debian-policy python-classes")
loop() {  # SWEEP HALF
  local texts
  read -ra texts <<<"${halves[$2]}"
  texts=("${texts[@]/#/$inputs/}")
  .venv-model/bin/python -B data/closed_loop.py "$inputs/$file" --text "${texts[@]/%/.txt}" --tokens 512 \
    --decisions live --config "$1" --out "$out/$2"
}
for model in smollm2-135m:SmolLM2-135M-Instruct.Q4_1.gguf qwen2.5-coder-0.5b:qwen2.5-coder-0.5b-instruct.gguf; do
  IFS=: read -r model file <<<"$model"
  data/dumps.sh "$folder" --inputs --only "$model-*" || { say "$model is left out" && continue; }
  out=results/allocate/$model
  for half in 0 1; do
    loop configs/loop_allocate.json $half
    build/bin/kvbench run --config configs/allocate.json --set "/dumps=[\"$PWD/$out/$half/model.h5\"]" \
      --out "$out/$half/errors" --quiet
  done
  for half in 0 1; do
    .venv/bin/python -B plots/allocated.py "$out/$((1 - half))/errors/results.json" >"$out/$half/sweep.json"
    loop "$out/$half/sweep.json" $half
  done
done
say "allocate: $SECONDS s, in results/allocate"
