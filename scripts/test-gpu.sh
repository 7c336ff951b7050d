#!/usr/bin/env bash
# bash scripts/test-gpu.sh [kernels] [mpi] [sanitizer] [-- argument of pytest ...]
#
# Tests on an NVIDIA GPU, or "not run" with exit code 77 where there is none.
#
#   kernels   the CUDA kernels, and compress and its relatives on device arrays
#   mpi       all MPI tests with CuPy arrays, over each transport that works here
#   sanitizer every kernel and some random arrays under compute-sanitizer's memcheck and racecheck, within
#             about two minutes; "not run" (exit code 77 if nothing else ran) without compute-sanitizer
#
#   ZCCL_TEST_RANKS="1 2 3 4 5 8"                        numbers of ranks; several share a GPU if they must
#   ZCCL_TEST_TRANSPORTS="mpi-staged mpi-device nccl"    transports
#   ZCCL_TEST_SECONDS=900                                time limit of one lane
#   ZCCL_TEST_EXAMPLES=60                                random arrays of each test of kernels (sanitizer: 4)
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
[ ${#groups[@]} != 0 ] || groups=(kernels mpi sanitizer)
seconds=${ZCCL_TEST_SECONDS:-900}
gpus=$(nvidia-smi -L | wc -l)
failed=0 ran=0

lane() { # NAME COMMAND ...
    local name=$1 start=$SECONDS code=0
    shift
    ran=1
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

sanitizer_lanes() { # the rest for pytest
    local sanitizer tool
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) || {
        echo "=== sanitizer: not run: needs compute-sanitizer (of the CUDA toolkit)"
        return 0
    }
    "$INTERPRETER" -m zccl warmup # compilers are no matter for it
    for tool in memcheck racecheck; do
        # What the driver answers when CuPy asks what there is, is no error here.
        ZCCL_TEST_EXAMPLES=${ZCCL_TEST_EXAMPLES:-4} lane "sanitizer, $tool" \
            "$sanitizer" --tool "$tool" --error-exitcode 99 --report-api-errors no --print-limit 20 \
            "$INTERPRETER" -m pytest --quiet --color=no tests/gpu/test_every_kernel.py \
            tests/gpu/test_halves.py tests/gpu/test_properties.py "$@"
    done
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
    sanitizer) sanitizer_lanes "$@" ;;
    *) fail "scripts/test-gpu.sh: no group '$group'; there are kernels, mpi and sanitizer" ;;
    esac
done
[ "$failed$ran" != 00 ] || exit 77
exit $failed
