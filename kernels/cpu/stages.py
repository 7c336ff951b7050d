"""The stages that kernels are built from: vectors where blocks are narrow, loops for wide ones.

`ZCCL_PLAIN_LOOPS=1`, read when the kernels are first imported, takes loops everywhere: a check, and
a yardstick.
"""

from typing import Any

from zccl.config import environment
from zccl.kernels.cpu import loops, vectors
from zccl.kernels.cpu._compile import helper

_plain = environment("plain_loops") is not None
stages: Any = loops if _plain else vectors
NARROW = -1 if _plain else vectors.MAX_NARROW  # largest width that the vector forms take

OVERRUN = vectors.OVERRUN  # bytes behind a block that stages may read or write

difference_16 = stages.difference_16
difference_add_16 = stages.difference_add_16
unpack_add_16 = stages.unpack_add_16
scan_small, scan_f4, scan_f8 = stages.scan_small, stages.scan_f4, stages.scan_f8
scale_small, scale_f4, scale_f8 = stages.scale_small, stages.scale_f4, stages.scale_f8
unpack_scan_small = stages.unpack_scan_small
unpack_scan_f4 = stages.unpack_scan_f4
unpack_scan_f8 = stages.unpack_scan_f8
copy_16, subtract_16, sum_16 = stages.copy_16, stages.subtract_16, stages.sum_16
integrate_16, _unpack_integrate_narrow = stages.integrate_16, stages.unpack_integrate_16
add_16 = loops.add_16
_pack_narrow, _unpack_narrow = stages.pack_16, stages.unpack_16
_pack_wide, _unpack_wide = loops.pack_16, loops.unpack_16


@helper
def pack_block(differences, width, target):
    """Write 16 differences as fields of `width` bits, offset by 2^(width-1)."""
    if width <= NARROW:
        _pack_narrow(differences, width, target)
    else:
        _pack_wide(differences, width, target)


@helper
def unpack_block(source, width, differences):
    """Read 16 fields; the inverse of `pack_block`, zeros for width 0."""
    if width <= NARROW:
        _unpack_narrow(source, width, differences)
    else:
        _unpack_wide(source, width, differences)


@helper
def unpack_integrate(source, width, before, above, target):
    """Read 16 fields, store their running sums after `before` plus 16 numbers."""
    if width <= NARROW:
        return _unpack_integrate_narrow(source, width, before, above, target)
    unpack_block(source, width, target)
    return integrate_16(target, before, above, target)
