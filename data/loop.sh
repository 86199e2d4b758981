#!/usr/bin/env bash
# data/loop.sh ARGUMENTS: a model's divergence over compressed caches, with the Python package kvbench and torch in
# .venv-model (6 GB). ARGUMENTS are those of data/closed_loop.py:
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
case " $* " in *" --help "* | *" -h "*) explain data/closed_loop.py ;; esac
environment .venv-model model
install_package .venv-model
.venv-model/bin/python -B data/closed_loop.py "$@"
