#!/usr/bin/env bash
# tests/bench/run.sh [--check|--record]: kvbench against other programs (numpy, torch), on KVBENCH_BENCH_DUMP
# or the shipped dump; with --check and --record whole sweeps too (tests/bench/README.md).
# --sweeps [OPTIONS]: whole sweeps next to numpy and kvpress; --micro [OPTIONS]: Google Benchmark;
# --cuda: the CUDA side on this machine's GPU.
# Peers run in .venv-model where that is there, else in .venv, without torch and kvpress.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
python=.venv-model/bin/python dump=${KVBENCH_BENCH_DUMP:-data/smollm2-constitution.h5} status=0 sweeps=()

# The Python with numpy, and torch and kvpress if they are there.
peers() {
  plots_environment
  "$python" -c 'import numpy, h5py, torch' 2>/dev/null || {
    say "SKIPPED: rows that need torch: ./bootstrap.sh deps model makes .venv-model, which has it"
    python=.venv/bin/python
  }
}

whole_sweeps() {
  local kvpress=()
  if "$python" -c 'import kvpress' 2>/dev/null; then
    kvpress=(--kvpress "$python")
  else
    say "SKIPPED: the sweep by kvpress: tests/peers/run.sh puts it into .venv-model"
  fi
  "$python" -B tests/bench/compare_sweeps.py --program build/bin/kvbench --numpy "$python" \
    "${kvpress[@]}" --dump "$dump" "$@"
}

case ${1:-} in
  --cuda) exec tests/cuda/run.sh --benchmarks ;;
  --sweeps)
    build
    peers
    whole_sweeps "${@:2}"
    exit
    ;;
esac
build kvbench benchmarks
[[ ${1:-} != --micro ]] || exec build/bin/benchmarks "${@:2}"
peers
"$python" -B tests/bench/compare_peers.py --benchmarks build/bin/benchmarks --peers "$python" \
  --dump "$dump" "$@" || status=$?
case " $* " in
  *" --only "*) say "SKIPPED: whole sweeps, with --only; --sweeps compares them" ;;
  *" --check "*) sweeps=(--check) ;;
  *" --record "*) sweeps=(--record) ;;
esac
[[ ${#sweeps[@]} == 0 ]] || whole_sweeps "${sweeps[@]}" || status=$?
exit $status
