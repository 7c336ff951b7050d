"""Cut the small test fields of tests/data out of the full fields.

    python scripts/make_test_fields.py FOLDER [tests/data]

FOLDER holds the full fields as .npy files; tests/data/README.md says where each comes from. A cut
is a contiguous block, so that it keeps the character of its field, under the same file name: a test
runs on either folder.
"""

import argparse
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent

CUTS = {
    "rtm_partial_images_f32": np.s_[6:9, 120:280, 30:190],
    "wave3d_f32": np.s_[16:48, 40:88, 40:88],
    "taylor_green_u_f32": np.s_[8:40, 24:72, 24:72],
    "ukv_theta_f32": np.s_[5:8, 20:180, 20:180],  # the level changes between the fields
    "a1b_air_temperature_f32": np.s_[100:140],
    "space_weather_ne_f64": np.s_[:],
    "etopo20_f32": np.s_[200:440, 300:620],  # sea, coast and mountains
    "hst_acs_crop_f32": np.s_[40:240, 700:1020],  # with the brightest pixels
    "adk_md_x_f32": np.s_[:2, :40000],
}


def main() -> None:
    """Cut all fields and print what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the full fields")
    parser.add_argument("output", type=Path, nargs="?", default=ROOT / "tests/data")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name, cut in CUTS.items():
        field = np.ascontiguousarray(np.load(args.folder / f"{name}.npy")[cut])
        np.save(args.output / f"{name}.npy", field)
        print(f"{name:26} {field.dtype} {field.shape} {field.nbytes:,} bytes")


if __name__ == "__main__":
    main()
