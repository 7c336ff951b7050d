"""What a collective tells about itself."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Info:
    """How a call went, on this rank.

    The second result of a collective called with `return_info=True`.

    Attributes
    ----------
    collective : str
        Name of the call.
    algorithm : str
        One of zccl's own, or "native".
    reason : str
        Why this one.
    transport : str
        What carried the messages: "mpi", or for device arrays "mpi-staged", "mpi-device" or "nccl".
    transport_reason : str
        Why, for device arrays.
    error_bound : float
        Absolute bound that the result is guaranteed to keep, of a reduction up to one rounding to
        its dtype; 0 when nothing was quantised.
    step : float
        Grid step; 0 when nothing was quantised.
    nbytes : int
        Uncompressed bytes of this rank's input.
    wire_nbytes : int
        Bytes that this rank sent. For "native", what the fewest-byte algorithm sends: `2 (N - 1) /
        N` of the array.
    raw_wire_nbytes : int
        Bytes that the same messages would have had uncompressed.
    escapes : int
        Values of this rank that travelled as they are: NaN, infinities, and what else the grid
        cannot hold.
    seconds : dict of str to float
        "agree" (checks and agreement), "code" (compress, reduce, decompress), "wire" (waiting for
        messages), "total".
    """

    collective: str
    algorithm: str
    reason: str
    transport: str
    transport_reason: str
    error_bound: float
    step: float
    nbytes: int
    wire_nbytes: int
    raw_wire_nbytes: int
    escapes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes this rank sent than without compression; above 1 is good."""
        return self.raw_wire_nbytes / self.wire_nbytes if self.wire_nbytes else 1.0
