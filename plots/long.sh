#!/usr/bin/env bash
# plots/long.sh [FOLDER]: eighteen methods of the field on the first 2048 to 32,768 tokens of Opticks, which
# Qwen2.5-Coder 0.5B reads, into results/long. Model and text are fetched into FOLDER/inputs; the dumps, with every
# query, go to FOLDER/lengths (1.0 GB). `first` has 16,384 tokens, `last` the last 8192 of them alone: the same decoded
# rows after fewer tokens. `whole` and `half` are such a pair of twice the length. Below them a folder is a mode, a
# number of tokens and one of decoded tokens. The dumps take an hour of a core and 10 GB of memory, the sweeps twenty
# minutes.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
inputs=$folder/inputs dumps=$folder/lengths
build
data/dumps.sh "$folder" --inputs --only qwen2.5-coder-0.5b-opticks-32k
plots_environment
mkdir -p "$dumps"
export_dump() {  # its name, its first token, tokens
  [[ -f $dumps/$1.h5 ]] || .venv-model/bin/python -B data/export_transformers.py \
    "$inputs/qwen2.5-coder-0.5b-instruct.gguf" --text "$inputs/opticks-32k.txt" --start "$2" --tokens "$3" \
    --layers 0,1,4,6,12,18,23 --compute-dtype float32 --dtype float16 --round --out "$dumps/$1.h5"
}
export_dump first 0 16384
export_dump last 8192 8192
export_dump whole 0 32768
export_dump half 16384 16384
only=()
for method in uniform window streaming_llm h2o tova caote snapkv pyramidkv knorm keydiff lagkv expected_attention curdkv \
  qfilters compactor kcenter balancekv_prefill balancekv subgen; do
  only+=(--only "$method/*/*/*/*")
done
sweep() {  # dump, mode, tokens, decoded tokens
  build/bin/kvbench run --config "configs/field_$2.json" --out "results/long/$1/$2_$3_$4" --quiet \
    --set "/dumps=[\"$dumps/$1.h5\"]" --set "/select/tokens=[$3]" --set "/replay/prompt_tokens=$(($3 - $4))" "${only[@]}"
}
for tokens in 2048 4096 8192 12288 16384; do sweep first published $tokens 64; done
for tokens in 2048 8192 16384; do sweep first equalised $tokens 64; done
for tokens in 8192 16384; do sweep first published $tokens 256; done
sweep last published 8192 64
for mode in published equalised; do sweep whole $mode 32768 64; done
sweep half published 16384 64
for dump in first last whole half; do .venv/bin/python -m kvplot field_modes results/long/$dump --out results/long/$dump; done
say "long: $SECONDS s, in results/long"
