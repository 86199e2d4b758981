#!/usr/bin/env bash
# plots/figures.sh: every figure of plots/GALLERY.md, in results/figures: the sweeps of configs/figures and the
# field, then what they give. A sweep that is not older than its inputs stays; an interrupted one goes on.
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
build
plots_environment
program=build/bin/kvbench dump=data/smollm2-constitution.h5 out=results/figures
for config in configs/figures/*.json configs/field.json; do
  results=$out/$(basename "$config" .json)/results.json
  if newer "$results" "$config" "$program" && head -c 400 "$results" | grep -q '"complete"'; then
    continue
  fi
  say "running $config"
  "$program" run --config "$config" --out "$(dirname "$results")" --quiet
done
if ! newer "$out/inspection.json" "$dump" "$program"; then
  say "inspecting $dump"
  "$program" inspect "$dump" --json >"$out/inspection.part"
  mv "$out/inspection.part" "$out/inspection.json"
fi
say "drawing (t-SNE takes longest)"
.venv/bin/python -m kvplot papers --runs "$out" --inspection "$out/inspection.json" --dump "$dump" --out "$out"
say "figures: $SECONDS s, in $out"
