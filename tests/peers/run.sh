#!/usr/bin/env bash
# tests/peers/run.sh [OPTIONS]: kvpress's classes and others' codecs compared with kvbench, in
# .venv-model with torch (6 GB); OPTIONS are unittest's.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
build kvbench kvbench-encode
environment .venv-model model peers || { say "SKIPPED: the comparison with kvpress and with other codecs" && exit; }
data_tests peers .venv-model "$@"
