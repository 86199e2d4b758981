#!/usr/bin/env bash
# plots/field.sh [FOLDER [PASSES]]: the field in two modes over the dumps that `data/dumps.sh FOLDER --all-layers` made,
# into results/field. Per model and mode: field.csv, families.csv, layers.csv and orders.csv, which plots/tables has.
# In each pass every layer of SmolLM2 and Qwen2.5-Coder is replayed on one text, which has some from every depth; as
# many passes as texts are all pairs. After the dumps a pass over SmolLM2 took 12 minutes on two busy cores, one over
# Qwen2.5-Coder 0.5B 7 minutes of a core. Gemma's three layers are replayed on all texts, 90 s of a core each. It
# resumes after an interruption. Default: one pass.
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps}")/all_layers
passes=${2:-1}
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
compgen -G "$folder/*-*.h5" >/dev/null || die "$folder has no dump; data/dumps.sh FOLDER --all-layers makes them"
[[ $passes =~ ^([1-9]|10)$ ]] || die "$passes passes: give a number from 1 to 10"
build
plots_environment
declare -A depths=([smollm2-135m]=30 [qwen2.5-coder-0.5b]=24 [qwen2.5-coder-1.5b]=28)
first=smollm2-135m
for model in $first gemma3-270m qwen2.5-coder-{0.5b,1.5b}; do
  compgen -G "$folder/$model-*.h5" >/dev/null || { say "$folder has no dump of $model; it is left out" && continue; }
  # The order decides which layers a text has: text r of N has layers r, r + 10 and r + 20, and those of r + N.
  texts=() only=()
  for text in us-constitution tom-sawyer python-source opticks debian-policy perl-intro devils-dictionary jargon-file \
    debian-constitution python-classes; do
    if [[ -f $folder/$model-$text.h5 ]]; then texts+=("$text"); fi
  done
  for ((pass = 0; pass < passes; ++pass)); do
    for ((layer = 0; layer < ${depths[$model]:-0}; ++layer)); do
      only+=(--only "*/*/${texts[(layer % 10 + pass) % ${#texts[@]}]}/$layer/*")
    done
  done
  for mode in published equalised; do
    say "running configs/field_$mode.json on $model"
    build/bin/kvbench run --config "configs/field_$mode.json" --out "results/field/$model/$mode" --quiet \
      --set "/dumps=[\"$folder/$model-*.h5\"]" "${only[@]}"
  done
  if [[ $model == qwen2.5-coder-0.5b ]]; then  # the sampled normaliser of subgen
    settings='"delta_quantile": 0.1, "t": 1, "s": 128'
    build/bin/kvbench run --config configs/field_published.json --out results/qwen/normaliser --quiet \
      --set "/dumps=[\"$folder/$model-*.h5\"]" "${only[@]}" --set '/name="normaliser"' --set "/algorithms=[
        {\"algorithm\": \"subgen\", \"label\": \"sampled\", \"params\": {$settings}},
        {\"algorithm\": \"subgen\", \"label\": \"exact\", \"params\": {$settings, \"normalizer\": \"exact\"}},
        {\"algorithm\": \"balancekv\", \"params\": {\"t\": 64, \"T\": 5}}]"
  fi
  against=()
  if [[ $model != "$first" && -f results/field/$first/field.csv ]]; then
    against=(--against "results/field/$first/field.csv")
  fi
  .venv/bin/python -m kvplot field_modes "results/field/$model" --out "results/field/$model" "${against[@]}"
done
# Is a layer's order of methods that of its text? Six layers on four texts, seven methods as released.
only=() dumps=()
for text in opticks perl-intro jargon-file debian-policy; do
  dump=$folder/smollm2-135m-$text.h5
  [[ ! -f $dump ]] || dumps+=("\"$dump\"")
done
if ((${#dumps[@]} == 4)); then
  for method in uniform snapkv h2o caote streaming_llm expected_attention pyramidkv; do
    for layer in 0 3 10 11 15 20; do only+=(--only "$method/*/*/$layer/*"); done
  done
  build/bin/kvbench run --config configs/field_published.json --out results/field/four_texts/published --quiet \
    --set "/dumps=[$(IFS=,; echo "${dumps[*]}")]" "${only[@]}"
  .venv/bin/python -m kvplot field_modes results/field/four_texts --out results/field/four_texts
fi
say "field: $SECONDS s, in results/field"
