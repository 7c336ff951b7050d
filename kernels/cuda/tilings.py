"""Values of tiles along two or three axes into a row of tiles, and back: a warp copies a tile.

The kernels that code know rows only; `axes` has the differences along all axes.
"""

from zccl.formats import TILE_SHAPES
from zccl.kernels.cuda._compat import cuda, device, i32, i64, types
from zccl.kernels.cuda._intrinsics import wait_for_previous
from zccl.kernels.cuda.values import VALUES

WARPS = 8
_SHAPES_FIT = TILE_SHAPES == {2: (1, 32, 32), 3: (8, 8, 16)}
assert _SHAPES_FIT, "written for these"

_i, _w = types.int64, types.int32
SIGNATURE = (_i, _i, _i, _i, _w, _i, _i, _i)


@device
def corner_of(tile, axes, z, y, x):
    """Return the first index of a tile on each axis: (z in planes of the whole array, z, y, x)."""
    tz = i64(1)
    ty = i64(32)
    tx = i64(32)
    if axes == i32(3):
        tz = i64(8)
        ty = i64(8)
        tx = i64(16)
    nx = (x + tx - i64(1)) // tx
    ny = (y + ty - i64(1)) // ty
    nz = (z + tz - i64(1)) // tz
    rest = tile // nx
    plane = rest // ny
    return plane // nz * z, tz * (plane % nz), ty * (rest % ny), tx * (tile % nx)


@device
def place_of(j, corner, axes, z, y, x):
    """Return where value j of a tile is in the array, and whether it is inside."""
    planes, zz, yy, xx = corner
    if axes == i32(2):
        yy += i64(i32(j >> i32(5)))
        xx += i64(i32(j & i32(31)))
    else:
        zz += i64(i32(j >> i32(7)))
        yy += i64(i32(i32(j >> i32(4)) & i32(7)))
        xx += i64(i32(j & i32(15)))
    inside = xx < x and yy < y and zz < z
    zz = min(zz, z - i64(1))
    yy = min(yy, y - i64(1))
    xx = min(xx, x - i64(1))
    return ((planes + zz) * y + yy) * x + xx, inside


def make_gather(value_words):
    """Return the kernel that copies values of an array into a row of tiles."""
    form = VALUES[value_words]
    load_bits, store_bits = form.load_bits, form.store_bits
    nbytes = 4 * value_words

    def gather_tiles(values, row, first, n, axes, z, y, x):
        """Copy the values of some tiles, what is beyond the edges of the array included.

        Parameters
        ----------
        values : address of the array
        row, n : address of a row of tiles, written, and its values
        first : number of its first tile in the array
        axes, z, y, x : the tiling
        """
        wait_for_previous()
        lane = i32(i32(cuda.threadIdx.x) & i32(31))
        tile = i64(cuda.blockIdx.x) * i64(WARPS) + i64(i32(i32(cuda.threadIdx.x) >> i32(5)))
        while tile < n >> i64(10):
            corner = corner_of(first + tile, axes, z, y, x)
            target = row + nbytes * (tile << i64(10))
            for k in range(32):
                j = i32(i32(32 * k) + lane)
                at, _ = place_of(j, corner, axes, z, y, x)
                store_bits(target + nbytes * i64(j), load_bits(values + nbytes * at))
            tile += i64(cuda.gridDim.x) * i64(WARPS)

    return gather_tiles


def make_scatter(value_words):
    """Return the kernel that copies a row of tiles into an array."""
    form = VALUES[value_words]
    load_bits, store_bits = form.load_bits, form.store_bits
    nbytes = 4 * value_words

    def scatter_tiles(values, row, first, n, axes, z, y, x):
        """Copy values to their places, but for those beyond the edges; as `gather_tiles`."""
        wait_for_previous()
        lane = i32(i32(cuda.threadIdx.x) & i32(31))
        tile = i64(cuda.blockIdx.x) * i64(WARPS) + i64(i32(i32(cuda.threadIdx.x) >> i32(5)))
        while tile < n >> i64(10):
            corner = corner_of(first + tile, axes, z, y, x)
            source = row + nbytes * (tile << i64(10))
            for k in range(32):
                j = i32(i32(32 * k) + lane)
                at, inside = place_of(j, corner, axes, z, y, x)
                if inside:
                    store_bits(values + nbytes * at, load_bits(source + nbytes * i64(j)))
            tile += i64(cuda.gridDim.x) * i64(WARPS)

    return scatter_tiles
