# Debian's packages and Python environments, for bootstrap.sh and the scripts next to the tests, which source
# this file. It goes to the root of the checkout.
# shellcheck shell=bash
set -euo pipefail
script=$(realpath "$0")
cd "$(dirname "${BASH_SOURCE[0]}")"

packages=(
  g++ ccache cmake ninja-build pkg-config libhdf5-dev zlib1g-dev libeigen3-dev libcli11-dev nlohmann-json3-dev
  libfmt-dev librandom123-dev libxxhash-dev doctest-dev libbenchmark-dev python3 python3-venv python3-numpy
  python3-pandas python3-matplotlib python3-h5py python3-dev python3-jsonschema python3-yaml python3-scipy python3-sklearn node-d3
)
# One version of all that is clang, which the presets name too. Older thread sanitizers fail where the
# system places memory at widely random addresses.
llvm=19
clang_packages=("clang-$llvm" "libclang-rt-$llvm-dev" "libomp-$llvm-dev" "llvm-$llvm")

say() { printf '%s\n' "$*" >&2; }
die() {
  say "${0##*/}: $*"
  exit 1
}
as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi; }
can_be_root() {
  [[ $(id -u) == 0 ]] || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; }
}

# Installs those of Debian's ${packages[@]} that are missing. KVBENCH_SKIP_DEPS=1 installs nothing; CMake then reports missing ones.
deps() {
  [[ ${KVBENCH_SKIP_DEPS:-0} != 1 ]] || return 0
  local installed package missing=()
  command -v dpkg-query >/dev/null ||
    die "this system has no Debian packages; install what INSTALL.md lists, then set KVBENCH_SKIP_DEPS=1"
  installed=" $(dpkg-query -W -f='${binary:Package}=${db:Status-Status} ' "${packages[@]}" 2>/dev/null || true)"
  for package in "${packages[@]}"; do
    grep -Eq " ${package//+/\\+}(:[a-z0-9]+)?=installed " <<<"$installed" || missing+=("$package")
  done
  [[ ${#missing[@]} != 0 ]] || return 0
  can_be_root || die "without root or sudo, have these packages installed:
  apt-get install --no-install-recommends ${missing[*]}"
  say "installing ${missing[*]}"
  as_root apt-get update -q >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
}

# A Python environment $1 with groups of pyproject.toml, each installed again when its list changes. The group
# `peers` comes without its dependencies. The environment .venv takes Debian's packages where they are there.
environment() {
  local folder=$1 python=/usr/bin/python3 group lines options
  shift
  [[ -x $python ]] || python=python3
  for group in "$@"; do
    lines=$(sed -n "/^$group = \[/,/^\]/p" pyproject.toml)
    cmp -s "$folder/$group" <<<"$lines" && continue
    if [[ $folder == .venv ]] && "$python" -c 'import numpy, scipy, pandas, matplotlib, h5py' 2>/dev/null; then
      "$python" -m venv --system-site-packages --without-pip .venv
    else
      say "the Python environment $folder: installing the group $group"
      [[ -x $folder/bin/pip ]] || "$python" -m venv --clear "$folder" || die "$python makes no environment"
      options=()
      if [[ $group == peers ]]; then options=(--no-deps); fi
      "$folder/bin/python" -m pip install --quiet --upgrade 'pip>=25.1' >&2 &&
        "$folder/bin/python" -m pip install --quiet --no-cache-dir "${options[@]}" --group "$group" >&2 ||
        { say "pip did not install the group $group of pyproject.toml" && return 1; }
    fi
    printf '%s\n' "$lines" >"$folder/$group"
  done
}

# .venv: the Python of kvplot and of the scripts, with the program and kvplot on its path.
plots_environment() {
  environment .venv plots
  printf '%s\n' "$PWD/plots" >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/kvplot.pth"
  ln -sf ../../build/bin/kvbench .venv/bin/kvbench
  printf '#!/bin/sh\nexec "%s" -m kvplot "$@"\n' "$PWD/.venv/bin/python" >.venv/bin/kvplot
  chmod +x .venv/bin/kvplot
}

. ./targets.sh
