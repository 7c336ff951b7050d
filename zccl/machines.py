"""What a cost model knows of machines: rates, latencies, and the pieces that messages are cut into.

The named ones are careful guesses from docs/benchmarks/results.md: rather too slow for coding than
too fast.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

SEGMENT_NBYTES = 4 << 20
DEVICE_SEGMENT_NBYTES = 32 << 20  # a GPU works on less for no longer than its launches take

# Parts of a chunk that are worth having, for coding one while another travels, and the bytes below
# which a part costs more messages than it gains.
PARTS = 8
SHORT_PART_NBYTES = 256 << 10
SHORT_OF_SEGMENT = 16  # a sixteenth of a long segment is short, too: what a GPU works on in no time
BUNDLE_NBYTES = 64 << 10  # short parts on one way share a message of so many


def part_nbytes(nbytes: int, segment_nbytes: int) -> int:
    """Return the most uncompressed bytes of a part of a chunk of so many."""
    short = max(SHORT_PART_NBYTES, segment_nbytes // SHORT_OF_SEGMENT)
    return min(segment_nbytes, max(nbytes // PARTS, short))


class Machine(NamedTuple):
    """What a rank has; all rates in bytes a second.

    Attributes
    ----------
    latency : float
        Seconds of a message.
    bandwidth : float
        Of one rank's messages, in each direction.
    call : float
        Seconds that a coded call takes beside its messages: Python, a last agreement.
    message : float
        Seconds that a processor spends on a coded message whatever its length.
    encode, decode, hop : float
        Rates of coding, in bytes of uncompressed values.
    native_latency, native_bandwidth : float
        What the native collective has: copies to the host and back are part of it.
    segment_nbytes : int
        Most uncompressed bytes of a message.
    """

    latency: float
    bandwidth: float
    call: float
    message: float
    encode: float
    decode: float
    hop: float
    native_latency: float
    native_bandwidth: float
    segment_nbytes: int = SEGMENT_NBYTES

    def threaded(self, threads: int) -> Machine:
        """Return the same with so many cores for each rank's coding."""
        return self._replace(
            encode=threads * self.encode, decode=threads * self.decode, hop=threads * self.hop
        )

    def on_link(self, latency: float, bandwidth: float) -> Machine:
        """Return the same over another link, where all that travels goes over it."""
        return self._replace(
            latency=latency, bandwidth=bandwidth, native_latency=latency, native_bandwidth=bandwidth
        )


def _in_turn(*rates: float) -> float:
    """Return the rate of bytes that pass these one after another."""
    return 1 / sum(1 / rate for rate in rates)


_TEN_GBIT, _HUNDRED_GBIT = 1.25e9, 12.5e9
_SHARED_MEMORY = 6e9  # as fast as a core copies
_DMA = 25e9

# A core, as docs/benchmarks/results.md has it. A call whose ranks send 4 KiB takes 0.3 ms more than
# its first agreement, each further message 0.05 ms.
_HOST = Machine(
    latency=20e-6, bandwidth=_TEN_GBIT, call=250e-6, message=50e-6,
    encode=2.5e9, decode=3.5e9, hop=1.7e9,
    native_latency=20e-6, native_bandwidth=_TEN_GBIT,
)  # fmt: skip

# The kernels reach 3.5, 3.5 and 2.3 TB/s on large messages; those of a segment reach less.
_STAGED = Machine(
    latency=20e-6, bandwidth=_HUNDRED_GBIT, call=300e-6, message=20e-6,
    encode=1.8e12, decode=2e12, hop=1.5e12,
    native_latency=40e-6, native_bandwidth=_in_turn(_HUNDRED_GBIT, _DMA, _DMA),
    segment_nbytes=DEVICE_SEGMENT_NBYTES,
)  # fmt: skip

# Coded messages travel one by one, their sizes ahead of them over the hosts: they were seen to get
# a third of what NCCL's own collectives make of a link. Not measured over NVLink: a quarter.
_NCCL = _STAGED._replace(
    latency=40e-6, bandwidth=_HUNDRED_GBIT / 2,
    native_latency=15e-6, native_bandwidth=_HUNDRED_GBIT,
)  # fmt: skip

MACHINES: dict[tuple[str, bool], Machine] = {
    ("mpi", False): _HOST,
    ("mpi", True): _HOST.on_link(1e-6, _SHARED_MEMORY),
    ("mpi-staged", False): _STAGED,
    ("mpi-staged", True): _STAGED._replace(
        latency=2e-6, bandwidth=_SHARED_MEMORY,
        native_latency=20e-6, native_bandwidth=_in_turn(_SHARED_MEMORY, _DMA, _DMA),
    ),
    ("nccl", False): _NCCL,
    ("nccl", True): _NCCL._replace(bandwidth=80e9, native_latency=10e-6, native_bandwidth=320e9),
}  # fmt: skip
"""By what carries messages, and whether all ranks are on one node."""


@functools.lru_cache(256)
def default_machine(
    carrier: str,
    one_node: bool,
    threads: int = 1,
    segment_nbytes: int | None = None,
    link_gbits: float | None = None,
) -> Machine:
    """Return the named machine of a carrier of messages.

    Parameters
    ----------
    carrier : str
        "mpi" for arrays of the host, else one of "mpi-staged", "mpi-device", "nccl"; where MPI
        reads device memory it is taken to be no faster than through the host's.
    one_node : bool
        Whether all ranks share memory.
    threads : int
        Cores that code for each rank; GPUs need one.
    segment_nbytes : int or None
        Most uncompressed bytes of a message; None: as usual.
    link_gbits : float or None
        Speed of links between nodes; None: as usual.
    """
    machine = MACHINES[carrier.replace("-device", "-staged"), one_node]
    if segment_nbytes is not None:
        machine = machine._replace(segment_nbytes=segment_nbytes)
    if link_gbits is not None and not one_node:
        machine = machine.on_link(machine.latency, link_gbits * 1e9 / 8)
    return machine.threaded(threads) if carrier == "mpi" else machine
