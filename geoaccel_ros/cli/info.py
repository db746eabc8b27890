"""``geoaccel info``: versions and devices."""

import argparse
import os
import platform
import sys

from geoaccel_ros import __version__
from geoaccel_ros.backend import cuda_device_name, cuda_problem
from geoaccel_ros.cli.output import write_json
from geoaccel_ros.versions import installed_versions

_PACKAGES = (
    "numpy", "scipy", "numba", "numba-cuda", "cupy-cuda13x", "cupy-cuda12x", "pyopencl",
    "mujoco-core", "mujoco", "rosbags", "zstandard", "rclpy",
)  # fmt: skip


def add_parsers(subparsers) -> None:
    """Add ``info``."""
    parser = subparsers.add_parser("info", help="versions and devices, for a bug report")
    parser.add_argument("--json", metavar="FILE", help="write JSON here; - for stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what this machine offers."""
    facts = {
        "geoaccel_ros": __version__,
        "python": sys.version.split()[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "ros_distribution": os.environ.get("ROS_DISTRO"),
        "fast_dds_profile": os.environ.get("FASTDDS_DEFAULT_PROFILES_FILE"),
        "packages": installed_versions(_PACKAGES),
        "cuda": _cuda(),
        "opencl": _opencl(),
    }
    if args.json is not None:
        write_json(facts, args.json)
    if args.json != "-":
        for name, value in facts.items():
            print(f"{name:18} {_text(value)}")
    return 0


def _cuda() -> str:
    problem = cuda_problem()
    return f"not usable: {problem}" if problem else cuda_device_name()


def _opencl() -> list[str] | str:
    import pyopencl

    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.LogicError as error:
        return f"no platform: {error}; pip install pocl-binary-distribution, or a vendor's driver"
    return [
        f"{p.name.strip()}: {device.name.strip()}" for p in platforms for device in p.get_devices()
    ]


def _text(value) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    if isinstance(value, list):
        return "; ".join(value)
    return "-" if value is None else str(value)
