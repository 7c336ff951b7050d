#!/usr/bin/env bash
# bash scripts/test-gpu.sh [argument of pytest ...]
#
# Tests of the CUDA kernels, and of compress and its relatives on device arrays. Needs an NVIDIA GPU, or it
# says "not run" with exit code 77. PYTHON chooses an interpreter that has CuPy, numba-cuda, NumPy, Numba
# and pytest already; without it they are installed into .venv-gpu (EXTRA=cuda12 for CUDA 12).

source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "not run: needs an NVIDIA GPU"
    exit 77
fi
python=${PYTHON:-}
if [ -z "$python" ]; then
    environment .venv-gpu "${EXTRA:-cuda13},test-tools"
    python=.venv-gpu/bin/python
fi
exec "$python" -m pytest --quiet tests/gpu "$@"
