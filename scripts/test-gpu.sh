#!/usr/bin/env bash
# bash scripts/test-gpu.sh [kernels] [mpi] [-- argument of pytest ...]
#
# Tests on an NVIDIA GPU, or "not run" with exit code 77 where there is none.
#
#   kernels   the CUDA kernels, and compress and its relatives on device arrays
#   mpi       all MPI tests with CuPy arrays, over each transport that works here
#
#   ZCCL_TEST_RANKS="1 2 3 4 5 8"                        numbers of ranks; several share a GPU if they must
#   ZCCL_TEST_TRANSPORTS="mpi-staged mpi-device nccl"    transports
#   ZCCL_TEST_SECONDS=900                                time limit of one lane
#
# PYTHON, MPIEXEC and EXTRA choose interpreter, launcher and version of CUDA: see use_gpu in scripts/env.sh.

source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

use_gpu
groups=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    groups+=("$1")
    shift
done
[ $# = 0 ] || shift
[ ${#groups[@]} != 0 ] || groups=(kernels mpi)
seconds=${ZCCL_TEST_SECONDS:-900}
gpus=$(nvidia-smi -L | wc -l)
failed=0

lane() { # NAME COMMAND ...
    local name=$1 start=$SECONDS code=0
    shift
    timeout --kill-after=10 "$seconds" "$@" </dev/null || code=$?
    echo "=== $name: exit code $code after $((SECONDS - start)) s"
    [ "$code" = 0 ] || failed=1
}

ranks_lane() { # TRANSPORT N, the rest for pytest
    local transport=$1 n=$2
    shift 2
    ZCCL_TRANSPORT=$transport lane "$transport, $n ranks" \
        "${LAUNCHER[@]}" -n "$n" "$INTERPRETER" -m pytest --with-mpi --quiet --color=no \
        --timeout-method=thread "$@"
}

for group in "${groups[@]}"; do
    case $group in
    kernels) lane kernels "$INTERPRETER" -m pytest --quiet --color=no tests/gpu "$@" ;;
    mpi)
        for transport in ${ZCCL_TEST_TRANSPORTS:-mpi-staged mpi-device nccl}; do
            for n in ${ZCCL_TEST_RANKS:-1 2 3 4 5 8}; do
                if [ "$transport" = nccl ] && { [ "$n" -gt "$gpus" ] || [ "$n" = 1 ]; }; then
                    echo "=== nccl, $n ranks: not run: needs $n GPUs, and two ranks"
                    continue
                fi
                ZCCL_TEST_DEVICE=1 ranks_lane "$transport" "$n" tests/mpi --ignore=tests/mpi/test_device.py "$@"
                ranks_lane "$transport" "$n" tests/mpi/test_device.py "$@"
            done
        done
        ;;
    *) fail "scripts/test-gpu.sh: no group '$group'; there are kernels and mpi" ;;
    esac
done
exit $failed
