# Sourced by bench-link.sh and emulated-cluster.sh, after env.sh: rate-limited links in network namespaces.

# Bytes that a link passes at once, and that it holds back before it drops. Below 64 KiB the bucket cuts
# batches of segments into packets, and the processor becomes the limit; far above, short messages pass
# unlimited.
BURST=${BURST:-256kb}
LIMIT=${LIMIT:-32mb}

# The comment at the head of the script, as help.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" | sed '1s/^/usage: /'; }

not_run() {
    echo "not run: $*" >&2
    exit 77
}

# need_namespaces FLAG ...: leaves with exit code 77 where these namespaces (flags of unshare) or a
# rate limit cannot be had.
need_namespaces() {
    local tool
    for tool in unshare nsenter ip tc; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
            not_run "needs root and '$tool' (Debian, Ubuntu: apt install util-linux iproute2)"
    done
    export PATH=$PATH:/usr/sbin:/sbin
    unshare "$@" true 2>/dev/null ||
        not_run "needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) to make network namespaces"
    set_link 1gbit
    "${LINK[@]}" true 2>/dev/null ||
        not_run "needs root (CAP_NET_ADMIN) and a kernel with the token bucket filter (sch_tbf)"
}

check_rate() { # RATE
    [[ $1 =~ ^([0-9]+(\.[0-9]+)?[kmgt]?bit|none)$ ]] ||
        fail "rate '$1': wanted something like 100mbit, 1gbit, 10gbit, or none"
}

# set_link RATE: LINK becomes words that run a command in a network namespace of its own, whose loopback
# carries RATE in all, both directions and all ranks together. The namespace goes with the command.
set_link() {
    # shellcheck disable=SC2016  # for the inner shell
    LINK=(unshare -n -- bash -euc '
        ip link set lo up
        [ "$0" = none ] || tc qdisc replace dev lo root tbf rate "$0" burst "$1" limit "$2"
        shift 2
        exec "$@"' "$1" "$BURST" "$LIMIT")
}

# choose_mpi mpich|openmpi: sets VENV and LAUNCHER like use_mpi, and keeps all messages on TCP. A VENV that
# is set is taken as it is.
choose_mpi() {
    if [ -n "${VENV:-}" ]; then
        [ -x "$VENV/bin/mpiexec" ] || fail "VENV: there is no $VENV/bin/mpiexec"
        LAUNCHER=("$VENV/bin/mpiexec")
    else
        use_mpi "$1"
    fi
    export PATH=$VENV/bin:$PATH PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}
    case $1 in
    mpich) export MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp ;;
    openmpi) export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self ;;
    *) fail "--mpi '$1': wanted mpich or openmpi" ;;
    esac
}
