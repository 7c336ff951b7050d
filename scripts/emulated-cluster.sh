#!/usr/bin/env bash
# bash scripts/emulated-cluster.sh COMMAND
#
# A small cluster on one machine, as MPI programs see it: each node has a hostname, an address, a /dev/shm
# and a link to a switch of its own. Links are full duplex and carry RATE each way. Needs root, or it says
# "not run" with exit code 77. Nothing is connected to the machine's own network.
#
#   up N RATE                        make node1 .. nodeN (RATE: 100mbit, 1gbit, ..., none)
#   run [--mpi openmpi] N CMD ...    run CMD on N ranks, spread evenly over the nodes in order
#   exec NODE CMD ...                run CMD on one node (or on "head", which holds the switch)
#   hosts                            node1,node2,...
#   rate RATE                        change the rate of all links
#   down                             end what runs on the nodes, and remove them
#
# Environment: VENV, an environment that is ready, instead of .venv; ZCCL_CLUSTER, the folder of the
# cluster's state (/run/zccl-cluster: one cluster at a time); for `up` and `rate` BURST and LIMIT of the token
# bucket; for `up` SNDBUF, the bytes of TCP's buffers. docs/networks.md tells more.

here=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source "$ROOT/scripts/netns.sh"
cd "$here"

state=${ZCCL_CLUSTER:-/run/zccl-cluster}
net=198.18.0 # of the range for benchmarks (RFC 2544); only seen inside

need_cluster() {
    [ -e "$state/nodes" ] || fail "there is no cluster in $state: bash scripts/emulated-cluster.sh up N RATE"
    nodes=$(cat "$state/nodes")
}

set_inside() { # NODE: INSIDE becomes words that run a command on it, in the present folder
    [ -s "$state/$1.pid" ] || fail "there is no node '$1'"
    INSIDE=(nsenter -t "$(cat "$state/$1.pid")" -n -u -m -i --wdns="$PWD" --)
}

inside() { # NODE COMMAND ...
    set_inside "$1"
    "${INSIDE[@]}" "${@:2}"
}

# new_node NAME: a sleeping process that holds the namespaces of a node open.
new_node() {
    # shellcheck disable=SC2016  # for the inner shell
    setsid unshare -n -u -m -i -- bash -euc '
        mount --make-rprivate /
        mkdir -p "$2/sys"
        mount -t sysfs sysfs "$2/sys" # with /sys/class/net of these namespaces
        if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup "$2/sys/fs/cgroup"; fi
        mount --rbind "$2/sys" /sys
        mount -t tmpfs tmpfs /dev/shm
        mount --bind "$2/hosts" /etc/hosts
        hostname "$1"
        ip link set lo up
        touch "$2/$1.ready"
        exec sleep infinity' _ "$1" "$state" </dev/null >"$state/$1.log" 2>&1 &
    echo $! >"$state/$1.pid"
    local tries
    for ((tries = 0; tries < 250; tries++)); do
        [ ! -e "$state/$1.ready" ] || return 0
        sleep 0.02
    done
    fail "node $1 did not start: $(cat "$state/$1.log")"
}

limit() { # NODE DEVICE RATE: of what leaves the device
    if [ "$3" = none ]; then
        inside "$1" tc qdisc del dev "$2" root 2>/dev/null || true # there may be none
    else
        inside "$1" tc qdisc replace dev "$2" root tbf rate "$3" burst "$BURST" limit "$LIMIT"
    fi
}

set_rate() { # RATE
    local i
    for ((i = 1; i <= nodes; i++)); do
        limit "node$i" eth0 "$1"
        limit head "port$i" "$1"
    done
}

up() { # N RATE
    [[ $1 =~ ^[1-9][0-9]?$ ]] || fail "up '$1': wanted 1 to 99 nodes"
    check_rate "$2"
    [ ! -e "$state" ] || fail "there is a cluster in $state already: end it with 'down'"
    nodes=$1
    mkdir -p "$state"
    # Stands in for ssh: MPI launchers want one program, without arguments of its own.
    printf '#!/bin/sh\nZCCL_CLUSTER=%q exec bash %q remote "$@"\n' \
        "$state" "$ROOT/scripts/emulated-cluster.sh" >"$state/remote"
    chmod +x "$state/remote"
    trap down EXIT # a cluster that is not whole
    local i
    {
        echo "127.0.0.1 localhost"
        echo "$net.254 head"
        for ((i = 1; i <= nodes; i++)); do echo "$net.$i node$i"; done
    } >"$state/hosts"

    new_node head
    inside head ip link add br0 type bridge
    inside head ip addr add "$net.254/24" dev br0
    inside head ip link set br0 up
    for ((i = 1; i <= nodes; i++)); do
        new_node "node$i"
        inside head ip link add "port$i" type veth peer name eth0 netns "$(cat "$state/node$i.pid")"
        inside head ip link set "port$i" master br0 up
        inside "node$i" ip addr add "$net.$i/24" dev eth0
        inside "node$i" ip link set eth0 up
        # Small buffers keep short messages from queueing behind bulk data on slow links.
        [ -z "${SNDBUF:-}" ] || inside "node$i" sh -c "
            echo 4096 $((SNDBUF / 4)) $SNDBUF >/proc/sys/net/ipv4/tcp_wmem
            echo 4096 $((SNDBUF / 2)) $((2 * SNDBUF)) >/proc/sys/net/ipv4/tcp_rmem"
    done
    set_rate "$2"
    echo "$nodes" >"$state/nodes"
    trap - EXIT
}

down() {
    # Without this mark it is not a folder of ours.
    [ -e "$state/remote" ] || { echo "there is no cluster in $state" >&2 && return 0; }
    local file pid
    for file in "$state"/*.pid; do
        [ -s "$file" ] || continue
        pid=$(cat "$file")
        kill_in "$(readlink "/proc/$pid/ns/net" || true)"
    done
    rm -rf "$state"
}

# kill_in NAMESPACE: end all that runs in a network namespace, if it is not this one.
kill_in() {
    local process
    [ -n "$1" ] && [ "$1" != "$(readlink /proc/self/ns/net)" ] || return 0
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/net" 2>/dev/null)" != "$1" ] ||
            kill "${process#/proc/}" 2>/dev/null || true # it may have ended by itself
    done
}

run() { # [--mpi MPI] N COMMAND ...
    local mpi=mpich
    if [ "${1:-}" = --mpi ]; then
        mpi=${2:-}
        shift 2
    fi
    [ $# -ge 2 ] && [[ $1 =~ ^[1-9][0-9]*$ ]] || { usage >&2 && exit 2; }
    choose_mpi "$mpi"
    local ranks=$1 each=$((($1 + nodes - 1) / nodes)) names
    shift
    set_inside head
    case $mpi in
    mpich)
        LAUNCHER=("${INSIDE[@]}" "${LAUNCHER[@]}" -launcher ssh -launcher-exec "$state/remote"
            -localhost head -hosts "$(hosts)" -ppn "$each")
        ;;
    openmpi)
        names=$(hosts)
        LAUNCHER=("${INSIDE[@]}" "${LAUNCHER[@]}" --prtemca plm ssh --prtemca plm_ssh_agent "$state/remote"
            --host "${names//,/:$each,}:$each" --map-by slot --bind-to none)
        ;;
    esac
    launch "$ranks" 3600 "$@"
}

hosts() { seq -f node%g -s , 1 "$nodes"; }

# remote [-option ...] NODE WORD ...: like ssh, which joins words with blanks for a shell to take apart.
remote() {
    while [ "${1#-}" != "$1" ]; do shift; done
    set_inside "$1"
    shift
    exec "${INSIDE[@]}" /bin/sh -c "$*"
}

verb=${1:-}
[ $# = 0 ] || shift
case $verb:$# in
up:2 | rate:1 | run:* | exec:[!01]* | exec:1?* | remote:* | hosts:0 | down:0) ;;
-h:* | --help:*) usage && exit 0 ;;
*) usage >&2 && exit 2 ;;
esac
need_namespaces -n -u -m -i
case $verb in
up) up "$@" ;;
down) down ;;
*)
    need_cluster
    case $verb in
    rate) check_rate "$1" && set_rate "$1" ;;
    exec) inside "$@" ;;
    run) run "$@" ;;
    hosts) hosts ;;
    remote) remote "$@" ;;
    esac
    ;;
esac
