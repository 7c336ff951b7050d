"""Collectives on CuPy arrays: the CPU's bits, the caller's stream, mixed calls, clear errors.

The transport is that of `ZCCL_TRANSPORT`.
"""

import os

import numpy as np
import pytest
from mpi.checks import OPS, RANK, SIZE, assert_raises_everywhere, same_bits, wave
from mpi.movement import WAYS, assert_all, call, rows
from mpi4py import MPI

import zccl

cupy = pytest.importorskip("cupy", reason="needs CuPy")
try:
    GPUS = cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError:
    GPUS = 0

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:ranks .* share one GPU"),
]
TRANSPORT = os.environ.get("ZCCL_TRANSPORT") or "auto"
SHARED = SIZE > GPUS
REDUCTIONS = [
    ("allreduce", "ring"),
    ("allreduce", "recursive_doubling"),
    ("reduce_scatter", "ring"),
    ("reduce", "binomial"),
    ("reduce", "reduce_scatter_gather"),
]
N = 70_000
SMALL = zccl.Options(segment_nbytes=65536)


@pytest.fixture(autouse=True)
def own_gpu():
    with cupy.cuda.Device(RANK % GPUS):
        yield


def hostile(dtype="f4"):
    x = wave(N, dtype)
    x[7::3000] = np.nan
    x[RANK : RANK + 40] = 1e30
    x[5000:9000] = -0.0
    return x


def same(device, host):
    if host is None:
        return device is None
    return isinstance(device, cupy.ndarray) and same_bits(device.get(), host)


@pytest.mark.parametrize("name, algorithm", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_reductions_have_the_bits_of_the_cpu(name, algorithm, dtype):
    x = hostile(dtype)
    reduce = getattr(zccl, name)
    for op in OPS:
        for bound in (0, 1e-3):
            how = {"op": op, "error_bound": bound, "algorithm": algorithm, "options": SMALL}
            expected = reduce(x, **how)
            given = cupy.asarray(x)
            found, info = reduce(given, return_info=True, **how)
            assert_all(same(found, expected))
            assert_all(same_bits(given.get(), x) and info.transport.startswith(("mpi-", "nccl")))


@pytest.mark.parametrize("name, algorithm", WAYS)
@pytest.mark.parametrize("dtype", ["f4", "c16", "f2", "i4"])
def test_movement_has_the_bits_of_the_cpu(name, algorithm, dtype):
    counts = [0 if rank % 3 == 1 else 3000 + 37 * rank for rank in range(SIZE)]
    arrays = rows(counts, dtype)
    for bound in (0, 1e-3):
        how = {"error_bound": bound, "algorithm": algorithm, "options": SMALL}
        expected, _ = call(name, counts, [a.copy() for a in arrays], **how)
        there = [cupy.asarray(a) for a in arrays]
        found = _call_on_device(name, counts, there, **how)
        assert_all(same(found, expected))


def _call_on_device(name, counts, arrays, **how):
    everything = cupy.concatenate([*arrays, cupy.empty(0, arrays[0].dtype)])
    at_root = RANK == 0
    if name == "bcast":
        return zccl.bcast(everything if at_root else None, **how)
    if name == "scatter":
        send, given = (everything, counts) if at_root else (None, None)
        return zccl.scatter(send, None, given, **how)
    if name == "gather":
        return zccl.gather(arrays[RANK], None, counts, **how)
    if name == "allgather":
        return zccl.allgather(arrays[RANK], None, counts, **how)
    return zccl.alltoall(everything, None, counts, **how)


@pytest.mark.parametrize("algorithm", ["ring", "native"])
def test_work_is_ordered_on_the_callers_stream(algorithm):
    """The input is made, and the result used, by kernels queued on a non-blocking stream."""
    stream = cupy.cuda.Stream(non_blocking=True)
    x = wave(N)
    how = {"error_bound": 1e-3, "algorithm": algorithm, "options": SMALL}
    expected = zccl.allreduce(x, **how)
    with stream:
        slow = cupy.zeros(1 << 23, np.float32)
        given = cupy.full(N, np.nan, np.float32)
        out = cupy.empty_like(given)
        source = cupy.asarray(x)
        stream.synchronize()
        for _ in range(300):
            slow += cupy.sin(slow)
        given[...] = source + slow[0]
    assert zccl.allreduce(given, out, stream=stream, **how) is out
    with stream:
        doubled = out * 2
        given.fill(0)
    stream.synchronize()
    if algorithm == "ring":
        assert_all(same(out, expected) and same(doubled, expected * 2))
    else:
        assert_all(np.allclose(doubled.get(), 2 * expected, rtol=1e-5, atol=1e-5))


@pytest.mark.parametrize("progress", ["thread", "call"])
@pytest.mark.parametrize("algorithm", ["ring", "native"])
def test_started_work_is_ordered_on_the_callers_stream(algorithm, progress):
    """Inputs are still in the making at the start; results are used and given back at once."""
    stream = cupy.cuda.Stream(non_blocking=True)
    x = wave(N)
    options = zccl.Options(segment_nbytes=65536, progress=progress)
    how = {"error_bound": 1e-3, "algorithm": algorithm, "options": options}
    expected = zccl.allreduce(x, **how)
    sums = []
    with stream:
        slow = cupy.zeros(1 << 23, np.float32)
        source = cupy.asarray(x)
        stream.synchronize()
        requests = []
        for k in range(6):
            for _ in range(60):
                slow += cupy.sin(slow)
            given = source * (k + 1) + slow[0]
            requests.append(zccl.iallreduce(given, stream=stream, **how))
            del given
            junk = cupy.full(N, np.nan, np.float32)  # may be memory that was given back too early
        for request in requests:
            found = request.wait()
            for _ in range(60):
                slow += cupy.sin(slow)
            sums.append(found + slow[0])
            del found
            junk = cupy.full(N, np.nan, np.float32)
        del junk
    stream.synchronize()
    bound = 1.01e-3 if algorithm == "ring" else 1e-4
    assert_all(
        all(
            np.abs(total.get() - (k + 1) * expected).max() <= (k + 2) * bound
            for k, total in enumerate(sums)
        )
    )


@pytest.mark.parametrize("name", ["allreduce", "allgather", "bcast"])
def test_persistent_requests_see_new_values(name):
    x = cupy.asarray(wave(N))
    how = {"error_bound": 1e-3, "algorithm": "binomial" if name == "bcast" else "ring"}
    request = getattr(zccl, f"{name}_init")(x, **how)
    first = None
    for _ in range(4):
        x *= 2
        request.Start()
        found = request.wait()
        first = found if first is None else first
        wanted = getattr(zccl, name)(x.get(), **how)
        kept = name == "bcast" and RANK == 0  # the root's own array
        assert_all(found is first and (kept or same_bits(found.get(), wanted)))
    request.Free()


def test_streams_of_other_libraries():
    cuda = pytest.importorskip("numba.cuda")
    x = wave(5000)
    expected = zccl.allreduce(x, error_bound=1e-3, algorithm="ring")
    theirs = cuda.to_device(x)
    out = cuda.device_array_like(theirs)
    stream = cuda.stream()
    got = zccl.allreduce(theirs, out, error_bound=1e-3, algorithm="ring", stream=stream)
    stream.synchronize()
    assert_all(got is out and same_bits(out.copy_to_host(), expected))
    number = cupy.cuda.get_current_stream().ptr
    found = zccl.allreduce(theirs, error_bound=1e-3, algorithm="ring", stream=number)
    assert_all(same(found, expected))
    assert_raises_everywhere(
        TypeError, lambda: zccl.allreduce(theirs, error_bound=1e-3, stream="fast")
    )


@pytest.mark.parametrize("algorithm", ["ring", "native"])
def test_tensors_of_pytorch(algorithm):
    """They are taken and filled on PyTorch's stream; those that want gradients are refused."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA in PyTorch")
    place = f"cuda:{RANK % GPUS}"
    x = wave(5000).reshape(50, 100)
    how = {"error_bound": 1e-3, "algorithm": algorithm}
    expected = zccl.allreduce(x, **how)
    stream = torch.cuda.Stream(place)
    with torch.cuda.stream(stream):
        theirs = torch.as_tensor(x, device=place)
        out = torch.empty_like(theirs)
        slow = torch.zeros(1 << 23, device=place)
        for _ in range(100):
            slow += torch.sin(slow)
        theirs += slow[0]
        got = zccl.allreduce(theirs, out, stream=stream, **how)
        doubled = out * 2
    stream.synchronize()

    def fits(tensor, wanted):
        found = tensor.cpu().numpy()
        return same_bits(found, wanted) if algorithm == "ring" else np.allclose(found, wanted)

    assert_all(got is out and fits(out, expected) and fits(doubled, 2 * expected))
    made = zccl.allreduce(theirs, stream=stream, **how)
    with torch.cuda.stream(stream):
        assert_all(fits(torch.as_tensor(made, device=place), expected))
        flat = torch.empty(SIZE * 5000, device=place)
        assert_all(zccl.allgather(theirs.reshape(-1), flat, stream=stream, **how) is flat)
    again = theirs.clone()
    assert_all(zccl.allreduce(MPI.IN_PLACE, again, **how) is again and fits(again, expected))
    learning = torch.ones(5, device=place, requires_grad=True)
    texts = assert_raises_everywhere(TypeError, lambda: zccl.allreduce(learning, **how))
    assert "detach" in texts[0]


@pytest.mark.skipif(SIZE == 1, reason="a single rank is not mixed")
def test_ranks_with_arrays_of_both_kinds():
    """Host and device ranks work together, and each gets what it gave."""
    x = wave(N)
    odd = RANK % 2 == 1
    mine = cupy.asarray(x) if odd else x
    for algorithm in ("ring", "recursive_doubling"):
        how = {"error_bound": 1e-3, "algorithm": algorithm}
        expected = zccl.allreduce(x, **how)
        if TRANSPORT not in ("auto", "mpi-staged"):
            assert_raises_everywhere(
                zccl.TransportError, lambda how=how: zccl.allreduce(mine, **how)
            )
            continue
        found, info = zccl.allreduce(mine, return_info=True, **how)
        assert_all(same(found, expected) if odd else same_bits(found, expected))
        assert_all(info.transport == "mpi-staged")
    if TRANSPORT in ("auto", "mpi-staged"):
        place = None if odd else np.empty_like(x)
        found = zccl.bcast(cupy.asarray(x) if RANK == 0 else place, error_bound=1e-3,
                           algorithm="binomial")  # fmt: skip
        assert_all(isinstance(found, np.ndarray) == (not odd and RANK > 0))


def test_arrays_of_one_rank_are_of_one_kind():
    x = wave(100)
    there = cupy.asarray(x)
    for send, into in ((x, cupy.empty_like(there)), (there, np.empty_like(x))):
        assert_raises_everywhere(
            TypeError, lambda send=send, into=into: zccl.allreduce(send, into, error_bound=1e-3)
        )
    wrong = [cupy.empty(99, "f4"), cupy.empty(100, "f8")]
    for into, kind in zip(wrong, (ValueError, TypeError), strict=True):
        assert_raises_everywhere(kind, lambda into=into: zccl.allreduce(there, into))
    assert_raises_everywhere(ValueError, lambda: zccl.allreduce(x, stream=0))


def test_layouts_and_in_place():
    x = wave(6000)
    how = {"error_bound": 1e-3, "algorithm": "ring"}
    expected = zccl.allreduce(x, **how)
    base = cupy.zeros((3000, 4), np.float32)
    view = base[:, ::2].T.reshape(6000)
    view[...] = cupy.asarray(x)
    strided = cupy.zeros(12000, np.float32)[::2]
    strided[...] = cupy.asarray(x)
    into = cupy.zeros(12000, np.float32)
    found = zccl.allreduce(strided, into[1::2], **how)
    assert_all(same(found, expected) and not into[::2].any())
    given = cupy.asarray(x)
    found = zccl.allreduce(MPI.IN_PLACE, given, **how)
    assert_all(found is given and same(given, expected))
    given = cupy.asarray(x)
    assert_all(zccl.allreduce(given, given, **how) is given and same(given, expected))


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_the_arrays_gpu_is_used_and_the_callers_restored():
    x = wave(5000)
    expected = zccl.allreduce(x, error_bound=1e-3, algorithm="ring")
    other = (RANK + 1) % GPUS
    with cupy.cuda.Device(other):
        there = cupy.asarray(x)
    before = cupy.cuda.runtime.getDevice()
    found = zccl.allreduce(there, error_bound=1e-3, algorithm="ring",
                           options=zccl.Options(transport="mpi-staged"))  # fmt: skip
    assert_all(found.device.id == other and same(found, expected))
    assert_all(cupy.cuda.runtime.getDevice() == before != other)
    assert_raises_everywhere(
        ValueError, lambda: zccl.allreduce(there, cupy.empty(5000, "f4"), error_bound=1e-3)
    )


@pytest.mark.skipif(SIZE == 1 or SIZE > GPUS, reason="needs a GPU for each of several ranks")
def test_nccl_follows_the_arrays_to_other_gpus():
    """Its communicators belong to GPUs; the first ones are there when the arrays come back."""
    x = wave(5000)
    for algorithm in ("ring", "native"):
        how = {"error_bound": 1e-3, "algorithm": algorithm}
        expected = zccl.allreduce(x, **how)
        for shift in (0, 1, 0):
            with cupy.cuda.Device((RANK + shift) % GPUS):
                given = cupy.asarray(x)
            nccl = zccl.Options(transport="nccl")
            found = zccl.allreduce(given, options=nccl, **how)
            assert_all(found.device == given.device and np.allclose(found.get(), expected))
            assert_all(algorithm == "native" or same(found, expected))


def test_what_cannot_be_used_is_an_error_on_all_ranks():
    x = cupy.asarray(wave(100))
    how = {"error_bound": 1e-3, "algorithm": "ring"}
    if SHARED:
        nccl = zccl.Options(transport="nccl")
        if TRANSPORT == "auto":
            texts = assert_raises_everywhere(
                zccl.TransportError, lambda: zccl.allreduce(x, options=nccl, **how)
            )
            assert "one GPU for each rank" in texts[0]
    _, info = zccl.allreduce(x, return_info=True, **how)
    if TRANSPORT != "auto":
        assert info.transport == TRANSPORT
    elif SIZE == 1 or SHARED:
        assert info.transport == "mpi-staged"
    assert info.transport_reason


def test_memory_on_the_device_comes_back():
    x = cupy.asarray(wave(1 << 20))
    pool = cupy.get_default_memory_pool()
    for k in range(6):
        zccl.allreduce(x, error_bound=1e-3, algorithm="ring")
        cupy.cuda.get_current_stream().synchronize()
        if k == 2:
            before = pool.used_bytes()
    assert_all(pool.used_bytes() <= before)
