#!/usr/bin/env bash
# tests/loop/run.sh [OPTIONS]: data/closed_loop.py on tiny models, and kvpress and llama.cpp next to it, in .venv-model
# with torch (6 GB); OPTIONS are unittest's.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
build
environment .venv-model model peers || { say "SKIPPED: the closed loop's tests" && exit; }
install_package .venv-model
data_tests loop .venv-model "$@"
