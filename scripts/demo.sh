#!/usr/bin/env bash
# bash scripts/demo.sh [--gpu] [--ranks N] [option of examples/image_stacking.py ...]
#
# Sets up a virtual environment and stacks seismic images on N (4) ranks, with zccl and with plain MPI.
# MPIEXEC chooses a site's MPI, see scripts/env.sh.
#
# --gpu: the images lie on NVIDIA GPUs, by default one rank for each, and at least 2; where there is no GPU
# it says "not run" with exit code 77. EXTRA=cuda12 is for CUDA 12; PYTHON takes an interpreter that has
# CuPy, numba-cuda, mpi4py, h5py and matplotlib already, and installs nothing.

source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

ranks=''
gpu=''
while :; do
    case ${1:-} in
    --gpu) gpu=yes && shift ;;
    --ranks)
        ranks=${2:-}
        [[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "--ranks '$ranks' is not a number of ranks"
        shift 2
        ;;
    *) break ;;
    esac
done

if [ -n "$gpu" ]; then
    use_gpu
    gpus=$(nvidia-smi -L | grep -c '^GPU')
    ranks=${ranks:-$((gpus > 1 ? gpus : 2))}
    set -- --device cuda "$@"
else
    use_mpi "$([ -n "${MPIEXEC:-}" ] && echo site || echo mpich)"
    INTERPRETER=$VENV/bin/python
fi
ranks=${ranks:-4}
echo "stacking on $ranks ranks (the first run compiles the kernels, which takes about a minute)"
launch "$ranks" 600 "$INTERPRETER" examples/image_stacking.py "$@"
