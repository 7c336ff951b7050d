"""A GPU for each rank of a node."""

from __future__ import annotations

from mpi4py import MPI

from zccl.algorithms.agreement import NO_TERMS, agree
from zccl.algorithms.progress import finish
from zccl.errors import TransportError
from zccl.transport.mpi import transport_of


def bind_gpu(comm: MPI.Intracomm | None = None) -> int:
    """Give this rank a GPU of its node: make it CuPy's current device.

    Collective. Rank k of a node gets GPU k of those that CUDA shows it, and starts again from 0
    where there are more ranks than GPUs; then one rank warns that they share. Where a launcher
    shows each rank one GPU only, that is the one it gets. Call it before the first array is made.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        Communicator, `MPI.COMM_WORLD` by default.

    Returns
    -------
    int
        Number of the GPU, of those that CUDA shows this rank.

    Raises
    ------
    TypeError
        When `comm` is no intracommunicator.
    TransportError
        When CuPy or a GPU is missing on any rank, on all ranks.
    RuntimeError
        When a GPU cannot be used, on all ranks.

    Warns
    -----
    RuntimeWarning
        When several ranks work on one GPU: once, on the lowest of them.

    Examples
    --------
    >>> import zccl
    >>> gpu = zccl.bind_gpu()  # doctest: +SKIP
    >>> gpu  # doctest: +SKIP
    0
    """
    transport = transport_of(MPI.COMM_WORLD if comm is None else comm)
    node = transport.comm.Split_type(MPI.COMM_TYPE_SHARED)
    local_rank = node.rank
    node.Free()
    gpu, fault = 0, None
    try:
        gpu = _use_gpu(local_rank)
    except Exception as error:
        fault = error
    finish(agree(transport.comm, NO_TERMS, fault))

    from zccl.transport.gpus import current_place, warn_of_sharing

    warn_of_sharing(transport.comm.allgather(current_place()), transport.rank)
    return gpu


def _use_gpu(local_rank: int) -> int:
    """Make a GPU CuPy's current device; returns its number."""
    try:
        import cupy
    except ImportError as error:
        raise TransportError(
            f"GPUs need CuPy: pip install zccl-mpi[cuda13] or [cuda12] ({error})"
        ) from error
    try:
        count, reason = cupy.cuda.runtime.getDeviceCount(), "CUDA shows none"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        count, reason = 0, str(error)
    if not count:
        raise TransportError(f"no GPU: {reason}; look at nvidia-smi and CUDA_VISIBLE_DEVICES")
    gpu = int(local_rank % count)
    cupy.cuda.Device(gpu).use()
    cupy.cuda.runtime.getDeviceProperties(gpu)
    return gpu
