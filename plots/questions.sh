#!/usr/bin/env bash
# plots/questions.sh [--gemma] [FOLDER [PARTS [OUT [DEPTHS ..]]]]: questions about a sentence of the prompt, over
# compressed caches, asked of SmolLM2 and in ten texts, all fetched into FOLDER/inputs; tables in OUT, results/questions
# by default. --gemma asks Gemma 3 270M, whose layers of full attention are compressed, with tables in
# results/questions_gemma. Fifty questions to SmolLM2, ten at each of five depths, take an hour of a core of a busy
# machine, 70 s each. DEPTHS are those alone, PARTS run at a time (default 1). It resumes after an interruption.
name=questions file=SmolLM2-135M-Instruct.Q4_1.gguf only=smollm2 options=()
if [[ ${1:-} == --gemma ]]; then
  shift
  name=questions_gemma file=gemma-3-270m-q4_k_m.gguf only=gemma3 options=(--layers "5,11,17")
fi
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")
parts=${2:-1} out=$(realpath -m "${3:-$(dirname "${BASH_SOURCE[0]}")/../results/$name}")
if (($# > 3)); then options+=(--depths "${@:4}"); fi
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
[[ $parts =~ ^[1-9][0-9]?$ ]] || die "$parts parts: give a number from 1 to 99"
texts=(us-constitution tom-sawyer python-source opticks debian-policy perl-intro devils-dictionary jargon-file
  debian-constitution python-classes)
texts=("${texts[@]/#/$folder/inputs/}")
build
data/dumps.sh "$folder" --inputs --only "$only-*"
install_package .venv-model
plots_environment
runs=()
for ((part = 1; part <= parts; ++part)); do
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} .venv-model/bin/python -B data/ask_questions.py "$folder/inputs/$file" \
    --text "${texts[@]/%/.txt}" --config configs/questions.json --out "$out" "${options[@]}" --part "$part/$parts" &
  runs+=($!)
done
for run in "${runs[@]}"; do wait "$run"; done
.venv/bin/python -m kvplot questions "$out" --out "$out"
say "questions: $SECONDS s, in $out"
