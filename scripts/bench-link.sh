#!/usr/bin/env bash
# bash scripts/bench-link.sh [option ...] RATE ... [-- argument of `python -m zccl bench` ...]
#
# Runs a benchmark on one machine over a link of each RATE (100mbit, 1gbit, 10gbit, none, ...): a loopback
# in a network namespace of its own, shared by all ranks and both directions. Needs root, or it says
# "not run" with exit code 77. Nothing is set on the machine's own network, and nothing stays behind.
#
#   --ranks N              number of ranks, 2 by default, bound to a core each while there are enough
#   --mpi mpich|openmpi    MPICH by default
#   --command              what follows -- is a whole command, and no arguments of the benchmark
#   --seconds S            time limit for each rate, 600 by default
#
# The default benchmark is a ring allreduce of 64 MiB of float32, partial images of a reverse-time migration,
# with a range bound of 1e-3. Of other arguments the name of the benchmark comes first; --field FILE.npy
# chooses another field. VENV chooses an environment that is ready, instead of .venv; BURST and LIMIT those of
# the token bucket. docs/networks.md tells how to read the numbers.

here=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source "$ROOT/scripts/netns.sh"
cd "$here"

mpi=mpich
ranks=2
seconds=600
whole=no
rates=()
while [ $# != 0 ]; do
    case $1 in
    --mpi) mpi=${2:-} && shift ;;
    --ranks) ranks=${2:-} && shift ;;
    --seconds) seconds=${2:-} && shift ;;
    --command) whole=yes ;;
    --) shift && break ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) check_rate "$1" && rates+=("$1") ;;
    esac
    shift
done
[ ${#rates[@]} != 0 ] || { usage >&2 && exit 2; }
[[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "--ranks '$ranks' is not a number of ranks"
need_namespaces -n
choose_mpi "$mpi"

# The loopback is the only interface, and ranks of one host would otherwise talk through shared memory.
export MPIR_CVAR_NOLOCAL=1 FI_TCP_IFACE=lo OMPI_MCA_btl_tcp_if_include=lo
bind=()
if [ "$ranks" -le "$(nproc)" ]; then
    case $mpi in
    mpich) bind=(-bind-to core) ;;
    openmpi) bind=(--bind-to core) ;;
    esac
elif [ "$mpi" = openmpi ]; then
    bind=(--bind-to none)
fi

if [ $whole = yes ]; then
    command=("$@")
    [ $# != 0 ] || fail "--command: there is no command behind --"
else
    [ $# != 0 ] || set -- allreduce -b 64M -e 64M -n 5 -w 1 --algorithm ring
    command=("$VENV/bin/python" -m zccl bench "$@")
    if [[ " $* " != *" --field"* ]]; then
        scratch=$(mktemp -d)
        trap 'rm -rf "$scratch"' EXIT
        "$VENV/bin/python" - "$ROOT/examples/data/rtm_partial_images.h5" "$scratch/rtm.npy" <<'PYTHON'
import sys
import h5py
import numpy as np
with h5py.File(sys.argv[1]) as file:
    np.save(sys.argv[2], file["partial_images"][...])
PYTHON
        command+=(--field "$scratch/rtm.npy")
    fi
fi

# One rank sends to another: whether the limit is in force, and what the link gives without any algorithm.
probe='
import time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
data = np.zeros(16_000_000, np.uint8)
times = []
for _ in range(5):
    comm.Barrier()
    start = time.perf_counter()
    if comm.rank == 0:
        comm.Send(data, 1)
        comm.Recv(data[:1], 1)
    elif comm.rank == 1:
        comm.Recv(data, 0)
        comm.Send(data[:1], 0)
    times.append(time.perf_counter() - start)
if comm.rank == 0:
    print(f"16 MB from rank 0 to rank 1, best of 5: {8 * data.nbytes / min(times) / 1e9:.3f} Gbit/s")
'

mpiexec=("${LAUNCHER[@]}" "${bind[@]}")
failed=0
for rate in "${rates[@]}"; do
    set_link "$rate"
    LAUNCHER=("${LINK[@]}" "${mpiexec[@]}")
    echo "=== link $rate, $ranks ranks, $mpi"
    [ "$ranks" = 1 ] || launch "$ranks" 60 "$VENV/bin/python" -m mpi4py -c "$probe" || failed=1
    launch "$ranks" "$seconds" "${command[@]}" || failed=1
done
exit $failed
