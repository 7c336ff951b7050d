#!/usr/bin/env bash
# bash scripts/bench-gpu.sh [option ...] [part ...] [-- argument of `python -m zccl bench NAME` ...]
#
# Measures collectives of device arrays on the GPUs of one machine, beside NCCL and plain staged MPI in the
# same runs; guaranteed budget, partial images of a reverse-time migration. Says "not run" where something is
# missing, with exit code 77 where all is. The parts, all but codec by default:
#
#   10gbit    over loopback TCP limited to 10 Gbit/s: allreduce of 512 MiB at range bounds 1e-2, 1e-3 and 1e-4,
#             and of 64 MiB at 1e-3; scatter at 1e-2; bcast, allgather and reduce_scatter at 1e-3
#   25gbit    limited to 25 Gbit/s: allreduce at 1e-3
#   tcp       over loopback TCP without a limit: allreduce at 1e-2 and 1e-3
#   nvlink    what "auto" takes between the GPUs, 1 MiB to 1 GiB, beside NCCL
#   codec     compress, decompress and hops alone, on one GPU
#
#   --nbytes SIZE          in place of 512M, and of 1G
#   --iterations N         timed rounds of a line (3)
#   --ranks N              number of ranks, each on a GPU of its own (2)
#   --transports LIST      of zccl over TCP (nccl,mpi-staged)
#   --seconds S            time limit of one run (150)
#
# Both directions and all ranks share a limited link. For a limit this sets the queueing discipline of the
# machine's own loopback, by the command TC (tc), and removes it at the end: that needs root, and slows
# everything else that uses the loopback meanwhile. BURST (16mb) passes at once after a pause, so that lines that
# send little more than that look too good; LIMIT (64mb) waits at most.
#
# PYTHON, MPIEXEC and EXTRA choose interpreter, launcher and version of CUDA: see use_gpu in scripts/env.sh.

source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

ranks=2
iterations=3
seconds=150
large=512M
largest=1G
transports=nccl,mpi-staged
parts=()

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '1s/^/usage: /'; }

while [ $# != 0 ]; do
    case $1 in
    --nbytes) large=${2:-} largest=${2:-} && shift ;;
    --iterations) iterations=${2:-} && shift ;;
    --ranks) ranks=${2:-} && shift ;;
    --transports) transports=${2:-} && shift ;;
    --seconds) seconds=${2:-} && shift ;;
    --) shift && break ;;
    -h | --help) usage && exit 0 ;;
    10gbit | 25gbit | tcp | nvlink | codec) parts+=("$1") ;;
    *) fail "scripts/bench-gpu.sh: no part or option '$1'; there are 10gbit, 25gbit, tcp, nvlink and codec" ;;
    esac
    [ $# = 0 ] || shift
done
[ ${#parts[@]} != 0 ] || parts=(10gbit 25gbit tcp nvlink)
[[ $large =~ ^[1-9][0-9]*[KMG]?$ ]] || fail "--nbytes '$large': wanted a size such as 64M or 1G"
[[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "--ranks '$ranks' is not a number of ranks"
more=("$@")

gpus=$(nvidia-smi -L 2>/dev/null | wc -l) || gpus=0
wanted=$ranks
[ "${parts[*]}" != codec ] || wanted=1
if [ "$gpus" -lt "$wanted" ]; then
    echo "not run: needs $wanted NVIDIA GPUs, this machine has $gpus"
    exit 77
fi
use_gpu
scratch=$(mktemp -d)
field=$scratch/rtm.npy
"$INTERPRETER" - examples/data/rtm_partial_images.h5 "$field" <<'PYTHON'
import sys
import h5py
import numpy as np
with h5py.File(sys.argv[1]) as file:
    np.save(sys.argv[2], file["partial_images"][...])
PYTHON
read -ra tc <<<"${TC:-tc}"
burst=${BURST:-16mb}
limit=${LIMIT:-64mb}
export PYTHONUNBUFFERED=1

# NCCL at its best, Open MPI and MPICH on TCP over the loopback.
tcp_only=(
    NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo
    NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=4
    OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo
    MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=lo
)

limited=no
unlimit() {
    [ $limited = no ] || "${tc[@]}" qdisc del dev lo root || true
    limited=no
}
trap 'unlimit; rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

limit() { # RATE: whether the loopback has this limit now
    local now
    now=$("${tc[@]}" qdisc show dev lo 2>/dev/null) || return 1
    case $now in *tbf* | *htb* | *netem*) [ $limited = yes ] || return 1 ;; esac
    "${tc[@]}" qdisc replace dev lo root tbf rate "$1" burst "$burst" limit "$limit" 2>/dev/null || return 1
    limited=yes
}

failed=0
ran=no
bench() { # RANKS WORD ...
    local n=$1 start=$SECONDS code=0
    shift
    ran=yes
    timeout --kill-after=10 "$seconds" env "${variables[@]}" "${LAUNCHER[@]}" -n "$n" \
        "$INTERPRETER" -m zccl bench "$@" --device cuda "${more[@]}" </dev/null || code=$?
    [ "$code" = 0 ] || failed=1
    echo "# $1: exit code $code after $((SECONDS - start)) s"
}

line() { # COLLECTIVE ALGORITHM BOUNDS SIZE
    bench "$ranks" "$1" --algorithm "$2" --bounds "$3" -b "$4" -e "$4" --field "$field" \
        --transport "$transports" -n "$iterations" -w 1
}

lines_10gbit() {
    line allreduce ring 1e-2,1e-3,1e-4 "$large"
    line scatter binomial 1e-2 "$large"
    line bcast binomial 1e-3 "$large"
    line allgather ring 1e-3 "$large"
    line reduce_scatter ring 1e-3 "$large"
    line allreduce ring 1e-3 64M
}

lines_25gbit() { line allreduce ring 1e-3 "$large"; }

lines_tcp() { line allreduce ring 1e-2,1e-3 "$large"; }

for part in "${parts[@]}"; do
    variables=()
    echo
    echo "=== $part"
    case $part in
    *gbit)
        if limit "$part"; then
            echo "# link: loopback TCP, $part for all ranks and directions together, $burst at once after a pause"
            variables=("${tcp_only[@]}")
            "lines_$part"
            unlimit
        else
            echo "not run: needs root and tc (TC chooses the command), and a loopback without a limit"
        fi
        ;;
    tcp)
        variables=("${tcp_only[@]}")
        lines_tcp
        ;;
    nvlink)
        bench "$ranks" allreduce --algorithm auto --transport auto --bounds 1e-3 --beside nccl \
            -b 1M -e "$largest" --field "$field" -n 20 -w 3
        ;;
    codec) bench 1 codec ;;
    esac
done
[ $ran = yes ] || exit 77
exit $failed
