#!/usr/bin/env bash
# tests/install/container.sh [BASE]: the images of Containerfile, made by buildah and run; BASE is an image of
# Debian 12, or debootstrap: one that is made here.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
packages=(buildah debootstrap python3)
deps
python3 tests/install/container_test.py "${1:-docker.io/library/debian:bookworm-slim}"
