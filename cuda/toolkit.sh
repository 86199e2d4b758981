#!/usr/bin/env bash
# cuda/toolkit.sh: nvcc 13: the one on PATH or of NVIDIA's installer, else PyPI's in .venv-tools. It fails where none
# can be had.
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
for nvcc in nvcc /usr/local/cuda/bin/nvcc .venv-tools/toolkit/bin/nvcc; do
  if [[ $("$nvcc" --version 2>/dev/null) =~ release\ ([0-9]+) && ${BASH_REMATCH[1]} -ge 13 ]]; then exit; fi
done
environment .venv-tools cuda || die "there is no nvcc 13 here, and PyPI gave none; the CUDA side is not built"
cd .venv-tools
ln -sfn lib/python3*/site-packages/nvidia/cu13 toolkit
ln -sfn lib toolkit/lib64
