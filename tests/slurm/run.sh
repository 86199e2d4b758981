#!/usr/bin/env bash
# tests/slurm/run.sh [OPTIONS]: configs/slurm on a real Slurm of one node, which the test starts and stops by itself;
# OPTIONS are ctest's.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
build
if ! command -v slurmctld slurmd sbatch munged >/dev/null; then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    say "SKIPPED: the Slurm test needs root, and Debian's slurmctld slurmd slurm-client munge"
    exit
  fi
  packages=(slurmctld slurmd slurm-client munge)
  deps || { say "SKIPPED: Slurm could not be installed" && exit; }
fi
ctest --test-dir build --output-on-failure --tests-regex '^slurm$' "$@"
