"""Simulate reverse-time-migration partial images with Devito.

    pip install devito==4.8.23 scipy        # needs a C compiler at run time
    python scripts/make_rtm_devito.py FOLDER [--nx 401] [--nz 241] [--shots 16] [--seed 7]

The model is a stack of layers, faulted and folded, with a salt body. Each shot is modelled in the
true model, the response of the smoothed model is taken away, and the residual is migrated in the
smoothed model; FOLDER/rtm_partial_images.npy gets one image a shot, float32 (shot, x, depth).
Values agree between compilers and thread counts to rounding only.
"""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("DEVITO_LANGUAGE", "openmp")
os.environ.setdefault("DEVITO_LOGGING", "ERROR")

import numpy as np  # noqa: E402
from devito import Eq, Function, Operator, TimeFunction, solve  # noqa: E402
from examples.seismic import AcquisitionGeometry, Model, PointSource  # noqa: E402
from examples.seismic.acoustic import AcousticWaveSolver  # noqa: E402
from scipy.ndimage import gaussian_filter  # noqa: E402

SPACING = 10.0  # m
DEPTH = 20.0  # of sources and receivers, m
WATER = 1.5  # km/s
SPACE_ORDER = 8
BOUNDARY = 40  # absorbing layers, grid points


def velocity(nx: int, nz: int, seed: int) -> np.ndarray:
    """P velocity (km/s) of the model: water, layers, two faults, folds, salt."""
    random = np.random.default_rng(seed)
    x = np.linspace(0, 1, nx)[:, None]
    z = np.linspace(0, 1, nz)[None, :]
    fault = 0.06 * (x > 0.35 + 0.25 * z) - 0.05 * (x > 0.62 - 0.2 * z)
    fold = 0.05 * np.sin(2 * np.pi * (1.3 * x + 0.1)) + 0.03 * np.sin(2 * np.pi * 3.1 * x)
    stratum = z + fault * (z > 0.2) + fold * np.clip((z - 0.12) * 3, 0, 1)
    edges = np.sort(random.uniform(0.14, 0.98, 28))
    v = np.full(stratum.shape, WATER)
    for edge in edges:
        v = np.where(stratum > edge, 1.65 + 2.1 * edge + random.normal(0, 0.14), v)
    salt = ((x - 0.72) / 0.13) ** 2 + ((z - 0.66) / 0.17) ** 2 < 1
    v = np.where(salt, 4.4, v)
    return np.clip(v, WATER, 4.6).astype(np.float32)


def smoothed(v: np.ndarray) -> np.ndarray:
    """Migration velocity: slowness smoothed, water kept."""
    smooth = np.float32(1.0) / gaussian_filter(1.0 / v, 6)
    smooth[v < WATER + 0.001] = WATER
    return smooth.astype(np.float32)


def imaging(model, geometry):
    """Return the imaging operator and its forward and adjoint wavefields, residual and image."""
    grid = model.grid
    u = TimeFunction(name="u", grid=grid, time_order=2, space_order=SPACE_ORDER, save=geometry.nt)
    adjoint = TimeFunction(name="v", grid=grid, time_order=2, space_order=SPACE_ORDER)
    image = Function(name="img", grid=grid)
    residual = PointSource(
        name="res", grid=grid, time_range=geometry.time_axis, coordinates=geometry.rec_positions
    )
    wave = model.m * adjoint.dt2 - adjoint.laplace + model.damp * adjoint.dt.T
    step = Eq(adjoint.backward, solve(wave, adjoint.backward))
    inject = residual.inject(
        field=adjoint.backward, expr=residual * grid.stepping_dim.spacing**2 / model.m
    )
    operator = Operator(
        [step] + inject + [Eq(image, image + u * adjoint)], subs=model.spacing_map, name="Imaging"
    )
    return operator, u, adjoint, residual, image


def migrate(nx: int, nz: int, shots: int, seed: int) -> np.ndarray:
    """Partial images, float32 (shots, nx, nz)."""
    v = velocity(nx, nz, seed)
    common = dict(
        origin=(0.0, 0.0),
        shape=(nx, nz),
        spacing=(SPACING, SPACING),
        space_order=SPACE_ORDER,
        nbl=BOUNDARY,
        bcs="damp",
    )
    true, smooth = Model(vp=v, **common), Model(vp=smoothed(v), **common)
    dt = min(float(true.critical_dt), float(smooth.critical_dt))
    receivers = np.empty((nx, 2), np.float32)
    receivers[:, 0] = np.arange(nx) * SPACING
    receivers[:, 1] = DEPTH
    sources = np.linspace(0.04, 0.96, shots) * (nx - 1) * SPACING
    record_ms = 2.0 * (nz - 1) * SPACING / 1.9 + 400.0
    geometry = AcquisitionGeometry(
        true,
        receivers,
        np.array([[sources[0], DEPTH]]),
        0.0,
        record_ms,
        f0=0.015,
        src_type="Ricker",
    )
    solver = AcousticWaveSolver(true, geometry, space_order=SPACE_ORDER)
    operator, u, adjoint, residual, image = imaging(smooth, geometry)
    images = []
    start = time.time()
    for shot, x in enumerate(sources):
        geometry.src_positions[0, 0] = x
        data, _, _ = solver.forward(vp=true.vp, dt=dt)
        u.data[:] = 0
        modelled, _, _ = solver.forward(vp=smooth.vp, save=True, u=u, dt=dt)
        residual.data[:] = data.data[:] - modelled.data[:]
        adjoint.data[:] = 0
        image.data[:] = 0
        arguments = dict(u=u, v=adjoint, dt=dt, res=residual, img=image)
        if "vp" in {parameter.name for parameter in operator.parameters}:
            arguments["vp"] = smooth.vp
        operator(**arguments)
        inner = image.data[BOUNDARY:-BOUNDARY, BOUNDARY:-BOUNDARY]
        images.append(np.array(inner, dtype=np.float32))
        print(f"shot {shot + 1} of {shots}, {time.time() - start:.0f} s", flush=True)
    return np.stack(images)


def main() -> None:
    """Read the arguments, simulate, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nx", type=int, default=401)
    parser.add_argument("--nz", type=int, default=241)
    parser.add_argument("--shots", type=int, default=16)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    images = migrate(args.nx, args.nz, args.shots, args.seed)
    np.save(args.folder / "rtm_partial_images.npy", images)


if __name__ == "__main__":
    main()
