#!/usr/bin/env bash
# Makes the cache files of this folder again: the tokens that presses of kvpress 0.5.5 keep of the shipped dump, 448 of its
# 1792 prompt tokens (a quarter), in each KV head or on average. Presses that take another press have SnapKV's
# (or KeyDiff's, where it must not read attention); PyramidKV's default beta would leave it SnapKV's budgets.
# Left out: SimLayerKVPress, which keeps all of this prompt, ThinKPress, which keeps all tokens, and
# MergingPress, whose rows are vectors of their own, 4 MB. Needs .venv-model: tests/peers/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
"${PYTHON:-../.venv-model/bin/python}" -B kvpress_caches.py smollm2-constitution.h5 \
  CURPress CapPress CompactorPress ExpectedAttentionPress KeyDiffPress KnormPress LagKVPress LeverageScorePress \
  NonCausalAttnPress ObservedAttentionPress 'PyramidKVPress(beta=5)' RandomPress SnapKVPress StreamingLLMPress TOVAPress \
  'AdaKVPress(SnapKVPress)' 'BlockPress(KeyDiffPress)' 'ChunkKVPress(SnapKVPress)' 'ChunkPress(SnapKVPress)' \
  'EntropyGatedChunkKVPress(SnapKVPress)' --budget 448 --out kvpress --fresh
