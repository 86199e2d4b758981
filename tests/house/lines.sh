#!/usr/bin/env bash
# tests/house/lines.sh: lines of program text in git, by folder; the product is all of them except tests.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
product=0
for folder in lib apps cuda data plots tests; do
  lines=$(git ls-files -z "$folder" | grep -zE '\.(py|cpp|hpp|js|cu|cuh)$' | xargs -0 cat | wc -l)
  if [[ $folder == tests ]]; then printf '%-7s %7d\n' product "$product"; else ((product += lines)); fi
  printf '%-7s %7d\n' "$folder" "$lines"
done
