"""Write the partial images of the image-stacking example as HDF5, bit for bit.

    python scripts/make_rtm_example.py PARTIAL_IMAGES.npy [examples/data/rtm_partial_images.h5]

The .npy file holds float32 (shot, x, depth). It was simulated by `scripts/make_rtm_devito.py` with
Devito 4.8.23, every second one of 32 shots kept:

    pip install devito==4.8.23 scipy
    python scripts/make_rtm_devito.py rtm --shots 32
    python -c "import numpy as np; \
        np.save('images.npy', np.load('rtm/rtm_partial_images.npy')[::2])"
    python scripts/make_rtm_example.py images.npy
"""

import argparse
from pathlib import Path

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parent.parent


def write(images: np.ndarray, path: Path) -> None:
    """Write `images` with what a reader must know about them."""
    with h5py.File(path, "w", track_order=True) as file:
        # Plain: gzip with shuffle saves a fifth only.
        data = file.create_dataset("partial_images", data=images)
        data.attrs["axes"] = "shot, x, depth"
        data.attrs["spacing_m"] = 10.0
        data.attrs["description"] = (
            "Reverse-time-migration partial images of a faulted, folded layer model with a salt "
            "body, one a shot; their sum is the stacked image. Depth samples 0-44 hold the water "
            "layer and the imprint of the sources."
        )
        data.attrs["source"] = "Own simulation with Devito 4.8.23"
        data.attrs["licence"] = "CC0-1.0"
        data.attrs["generator"] = "scripts/make_rtm_devito.py, scripts/make_rtm_example.py"


def main() -> None:
    """Read the arguments, convert, check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path, help="the .npy file")
    parser.add_argument(
        "output", type=Path, nargs="?", default=ROOT / "examples/data/rtm_partial_images.h5"
    )
    args = parser.parse_args()
    images = np.load(args.images)
    if images.ndim != 3 or images.dtype != np.float32:
        parser.error(f"{args.images} holds {images.dtype} {images.shape}, want float32 of 3 axes")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write(images, args.output)
    with h5py.File(args.output) as file:
        np.testing.assert_array_equal(file["partial_images"][...], images)
    print(f"{args.output}: {images.shape}, {args.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
