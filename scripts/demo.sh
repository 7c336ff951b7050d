#!/usr/bin/env bash
# bash scripts/demo.sh [--ranks N] [option of examples/image_stacking.py ...]
#
# Sets up a virtual environment and stacks seismic images on N (4) ranks, with zccl and with plain MPI.
# MPIEXEC chooses a site's MPI, see scripts/env.sh.

source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

ranks=4
if [ "${1:-}" = --ranks ]; then
    ranks=${2:-}
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "--ranks '$ranks' is not a number of ranks"
    shift 2
fi

use_mpi "$([ -n "${MPIEXEC:-}" ] && echo site || echo mpich)"
echo "stacking on $ranks ranks (the first run compiles the kernels, which takes about a minute)"
launch "$ranks" 600 "$VENV/bin/python" examples/image_stacking.py "$@"
