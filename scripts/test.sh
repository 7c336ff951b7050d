#!/usr/bin/env bash
# bash scripts/test.sh
#
# Sets up virtual environments and runs all tests: unit tests, then MPI tests at several numbers of ranks
# under MPICH and under Open MPI (under the site's MPI alone when MPIEXEC is set, see scripts/env.sh).
#
#   ZCCL_TEST_LANES="unit mpich openmpi ptx gpu"   lanes to run; with MPIEXEC set: "unit site ptx gpu"
#   ZCCL_TEST_RANKS="1 2 3 4 5 8"              numbers of ranks under MPICH, or the site's MPI
#   ZCCL_TEST_OPENMPI_RANKS="2 3"              numbers of ranks under Open MPI
#   ZCCL_TEST_SECONDS=900                      time limit of one lane

source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

if [ -n "${MPIEXEC:-}" ]; then default="unit site ptx gpu"; else default="unit mpich openmpi ptx gpu"; fi
lanes=${ZCCL_TEST_LANES:-$default}
ranks=${ZCCL_TEST_RANKS:-1 2 3 4 5 8}
openmpi_ranks=${ZCCL_TEST_OPENMPI_RANKS:-2 3}
seconds=${ZCCL_TEST_SECONDS:-900}
passed=()
failed=()

# lane NAME COMMAND ...: run it, note the outcome, go on.
lane() {
    local name=$1 start=$SECONDS
    shift
    echo
    echo "=== $name"
    if "$@"; then
        passed+=("$name ($((SECONDS - start)) s)")
    else
        failed+=("$name (exit code $?)")
    fi
}

# MPI tests. A test that hangs inside MPI does not see a signal: the thread method ends the process.
mpi_lane() { # MPI N
    lane "$1, $2 ranks" launch "$2" "$seconds" \
        "$VENV/bin/python" -m pytest --with-mpi --quiet --color=no --timeout-method=thread tests/mpi
}

# The compilation for GPUs needs one core for minutes, and so do the unit tests: both at once.
start_ptx() {
    environment .venv-cuda test-cuda
    ptx_log=$(mktemp)
    timeout --kill-after=10 "$seconds" \
        .venv-cuda/bin/python -m pytest --quiet tests/compile/test_cuda_kernels.py >"$ptx_log" 2>&1 &
    ptx=$!
}
finish_ptx() {
    local code=0
    wait "$ptx" || code=$?
    cat "$ptx_log"
    rm "$ptx_log"
    return "$code"
}

case " $lanes " in *" ptx "*) start_ptx ;; esac
for name in $lanes; do
    case $name in
    unit)
        use_mpi "$([ -n "${MPIEXEC:-}" ] && echo site || echo mpich)"
        lane unit timeout --kill-after=10 "$seconds" \
            "$VENV/bin/python" -m pytest --quiet tests/unit tests/compile/test_cpu_kernels.py
        ;;
    mpich | site)
        use_mpi "$name"
        for n in $ranks; do mpi_lane "$name" "$n"; done
        ;;
    openmpi)
        use_mpi openmpi
        for n in $openmpi_ranks; do mpi_lane openmpi "$n"; done
        ;;
    ptx)
        lane "ptx (CUDA kernels compiled, no GPU needed; seconds waited)" finish_ptx
        ;;
    gpu)
        if nvidia-smi -L >/dev/null 2>&1; then
            lane gpu bash scripts/test-gpu.sh # whose lanes have the limit
        else
            printf '\n=== gpu\nnot run: needs an NVIDIA GPU\n'
        fi
        ;;
    *) fail "ZCCL_TEST_LANES: no lane '$name'; there are unit, mpich, openmpi, site, ptx, gpu" ;;
    esac
done

echo
echo "=== summary"
[ ${#passed[@]} = 0 ] || printf 'passed: %s\n' "${passed[@]}"
[ ${#failed[@]} = 0 ] || printf 'FAILED: %s\n' "${failed[@]}"
echo "${#passed[@]} lanes passed, ${#failed[@]} failed"
[ ${#failed[@]} = 0 ] && [ ${#passed[@]} != 0 ]
