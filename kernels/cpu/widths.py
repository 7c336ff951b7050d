"""The widths of a tile's 64 blocks, 5 bits each: eight at a time, neighbours folded together."""

import numpy as np

from zccl.formats import BLOCKS
from zccl.kernels.cpu._compile import helper
from zccl.kernels.cpu.memory import load_64, store_64


@helper
def pack_widths(widths, target):
    """Write the widths (uint8[64] at an address); 3 bytes behind the 40 are written too."""
    for group in range(BLOCKS // 8):
        x = load_64(widths + 8 * group)
        x = (x & np.uint64(0x001F001F001F001F)) | (
            (x >> np.uint64(3)) & np.uint64(0x03E003E003E003E0)
        )
        x = (x & np.uint64(0x000003FF000003FF)) | (
            (x >> np.uint64(6)) & np.uint64(0x000FFC00000FFC00)
        )
        x = (x & np.uint64(0x00000000000FFFFF)) | (
            (x >> np.uint64(12)) & np.uint64(0x000000FFFFF00000)
        )
        store_64(target + 5 * group, x)


@helper
def unpack_widths(source, widths):
    """Read the widths; 3 bytes behind the 40 are read too. Returns their sum."""
    total = np.int64(0)
    for group in range(BLOCKS // 8):
        x = load_64(source + 5 * group) & np.uint64(0xFFFFFFFFFF)
        x = (x & np.uint64(0x00000000000FFFFF)) | (
            (x & np.uint64(0x000000FFFFF00000)) << np.uint64(12)
        )
        x = (x & np.uint64(0x000003FF000003FF)) | (
            (x & np.uint64(0x000FFC00000FFC00)) << np.uint64(6)
        )
        x = (x & np.uint64(0x001F001F001F001F)) | (
            (x & np.uint64(0x03E003E003E003E0)) << np.uint64(3)
        )
        store_64(widths + 8 * group, x)
        total += np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))
    return total
