"""A stand-in for CuPy that knows some GPUs and nothing else, for programs that tests start."""

CUDA = """
import types

GPUS = {gpus}
UUIDS = {uuids}


class CUDARuntimeError(RuntimeError):
    pass


current = 0


class Device:
    def __init__(self, number):
        self.number = number

    def use(self):
        global current
        current = self.number


def count():
    if GPUS is None:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return GPUS


def properties(number):
    return {{"name": b"Fake GPU", "uuid": bytes([UUIDS[number]]) * 16}}


nccl = types.SimpleNamespace(available=False)
runtime = types.SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    getDevice=lambda: current,
    getDeviceCount=count,
    getDeviceProperties=properties,
)
"""


def write(folder, gpus=2, uuids=None):
    """Write the package into a folder, and return that.

    Parameters
    ----------
    gpus : int, None or "missing"
        How many there are; None is a machine without a driver, "missing" one without CuPy.
    uuids : list of int, optional
        A number for each GPU, all different by default.
    """
    package = folder / "cupy"
    package.mkdir(parents=True)
    if gpus == "missing":
        (package / "__init__.py").write_text("raise ImportError('no CuPy in this test')")
    else:
        (package / "__init__.py").write_text("from cupy import cuda")
        numbers = uuids or list(range(1, 1 + (gpus or 0)))
        (package / "cuda.py").write_text(CUDA.format(gpus=gpus, uuids=numbers))
    return folder
