"""Files made to break the readers: each ends in one line or in a cloud, and takes little memory."""

import io
import random
import struct
import tracemalloc

import laspy
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoaccel_ros.pointcloud.files import PointFileError, from_xyz, read_points, write_points

pytestmark = pytest.mark.filterwarnings("error")

MUTATIONS = 300


def points(count=12):
    rng = np.random.default_rng(0)
    return from_xyz(rng.normal(0, 10, (count, 3)), rng.random(count))


def written(tmp_path, suffix):
    write_points(tmp_path / f"sound{suffix}", points())
    return (tmp_path / f"sound{suffix}").read_bytes()


def las(point_format, compressed):
    las = laspy.create(point_format=point_format, file_version="1.4")
    las.add_extra_dim(laspy.ExtraBytesParams("w", "f4"))
    las.X, las.Y, las.Z = np.random.default_rng(0).integers(0, 1000, (3, 60))
    stream = io.BytesIO()
    las.write(stream, do_compress=compressed)
    return stream.getvalue()


PCD = (
    "VERSION 0.7\nFIELDS x y z _ n\nSIZE 4 4 8 1 2\nTYPE F F F U I\nCOUNT 1 1 1 4 2\n"
    "WIDTH {0}\nHEIGHT 1\nPOINTS {0}\nDATA {1}\n"
)
PLY = (
    "ply\nformat ascii 1.0\nelement vertex {0}\nproperty float x\nproperty double y\n"
    "property float z\nproperty uchar red\nend_header\n"
)
SOUND = {
    "bin": ("a.bin", lambda tmp_path: written(tmp_path, ".bin")),
    "npy": ("a.npy", lambda tmp_path: written(tmp_path, ".npy")),
    "pcd": ("a.pcd", lambda tmp_path: written(tmp_path, ".pcd")),
    "ascii pcd": (
        "a.pcd",
        lambda _: (PCD.format(2, "ascii") + "1 2 3 0 0 0 0 4 5\n-1 nan 1e3 0 0 0 0 6 7\n").encode(),
    ),
    "compressed pcd": (
        "a.pcd",
        # A literal of 17 bytes, a copy of 4 bytes from 4 back, a literal of 3 bytes.
        lambda _: (
            PCD.format(1, "binary_compressed").encode()
            + struct.pack("<II", 24, 24)
            + bytes([16, *range(17), 2 << 5, 3, 2, 7, 8, 9])
        ),
    ),
    "ply": ("a.ply", lambda tmp_path: written(tmp_path, ".ply")),
    "ascii ply": ("a.ply", lambda _: (PLY.format(2) + "1 2 3 4\n-5 6.5 nan 255\n").encode()),
    "csv": ("a.csv", lambda _: b'"X",Y,z,Intensity\n1,2,3,4\n5.5,-6e3,nan,8\n'),
    "xyz": ("a.xyz", lambda _: b"# x y z nx\n1 2 3 4\n\n5 6 7 8 // a\n"),
    "pts": ("a.pts", lambda _: b"2\n1 2 3 4 5 6 7\n8 9 1 2 3 4 5\n"),
    "txt": ("a.txt", lambda _: b'x\ty\tz\tt\n1\t2\t3\t4\n1\t2\t3\t"4"\n'),
    "las 3": ("a.las", lambda _: las(3, False)),
    "las 10": ("a.las", lambda _: las(10, False)),
    "laz 3": ("a.laz", lambda _: las(3, True)),
    "laz 7": ("a.laz", lambda _: las(7, True)),
}


def is_cloud(path):
    """Tell whether a cloud came out; anything but a cloud or a PointFileError fails."""
    try:
        found = read_points(path)
    except PointFileError as error:
        assert str(error).startswith(f"{path}: ") and str(error).isprintable()
        return False
    assert len(found) and {"x", "y", "z"} <= set(found.dtype.names)
    return True


def mutated(rng, content):
    """Return the content with some bytes changed, inserted, removed or cut off."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not content:
            break
        at = rng.randrange(min(len(content), rng.choice((500, len(content)))))
        width = rng.choice((1, 2, 4, 8))
        extreme = rng.choice(
            (b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"9" * 8, b"\n, -\t#;")
        )
        match rng.randrange(5):
            case 0:
                content[at] = rng.randrange(256)
            case 1:
                content[at : at + width] = extreme[-width:]
            case 2:
                content[at:at] = rng.choice((rng.randbytes(width), extreme))
            case 3:
                del content[at : at + rng.randrange(1, 40)]
            case 4:
                content = content[:at]
    return bytes(content)


@pytest.mark.parametrize("kind", SOUND)
def test_random_changes(tmp_path, kind):
    name, sound = SOUND[kind]
    content = sound(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert is_cloud(tmp_path / name)
    rng = random.Random(0)
    tracemalloc.start()
    for _ in range(MUTATIONS):
        (tmp_path / name).write_bytes(mutated(rng, content))
        is_cloud(tmp_path / name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Of files of at most 5 kB; a .laz may unpack to as much as its ratio allows.
    assert peak < 64 * 2**20


# Where a header or a count says how many points there are, no fewer are taken for all.
@pytest.mark.parametrize(
    "kind", [kind for kind in SOUND if kind not in ("bin", "csv", "xyz", "txt")]
)
def test_every_truncation_is_refused(tmp_path, kind):
    name, sound = SOUND[kind]
    content = sound(tmp_path)
    # Of text, the last number could as well have been shorter.
    whole = len(content) - (2 if kind in ("ascii pcd", "ascii ply", "pts") else 0)
    if kind == "ascii ply":
        whole -= 2
    for length in range(0, whole, 1 + whole // 1000):
        (tmp_path / name).write_bytes(content[:length])
        assert not is_cloud(tmp_path / name), length


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.npy",
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 3)}",
        ),
        ("a.pcd", PCD.format("%d", "ascii").encode()),
        ("a.pcd", PCD.format("%d", "binary").encode()),
        ("a.pcd", PCD.format("%d", "binary_compressed").encode() + b"\xff" * 8),
        ("a.ply", PLY.format("%d").encode()),
        ("a.ply", PLY.format("%d").replace("ascii", "binary_little_endian").encode()),
        ("a.ply", PLY.format("%d").replace("ascii", "binary_big_endian").encode()),
        ("a.pts", b"%d\n1 2 3\n"),
    ],
)
@pytest.mark.parametrize("number", [10**6, 2**31, 2**32, 10**12, 2**63, 2**64, 10**30])
def test_numbers_that_are_not_there(tmp_path, name, content, number):
    content = content.replace(b"%d", str(number).encode())
    if name == "a.npy":
        content = content.ljust(127) + b"\n" + bytes(36)
    (tmp_path / name).write_bytes(content)
    tracemalloc.start()
    assert not is_cloud(tmp_path / name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_a_copy_beyond_what_is_declared(tmp_path):
    """Of lzf: more output than its size says, by literals and by copies."""
    for packed in (bytes([31, *range(32)]), bytes([0, 1, 7 << 5, 255, 0])):
        content = PCD.format(1, "binary_compressed").encode()
        (tmp_path / "a.pcd").write_bytes(content + struct.pack("<II", len(packed), 24) + packed)
        assert not is_cloud(tmp_path / "a.pcd")


LINES = st.text(st.sampled_from("0123456789.-+eEinfaxyz,;\t \n\r\"'#/_²\ufeff"), max_size=80)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=LINES, name=st.sampled_from(["a.csv", "a.pts"]))
def test_any_text(tmp_path, text, name):
    (tmp_path / name).write_bytes(text.encode())
    is_cloud(tmp_path / name)


NUMBERS = st.floats(allow_nan=False)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=st.lists(st.tuples(*[NUMBERS] * 5), min_size=1, max_size=8),
    separator=st.sampled_from([",", ";", "\t", " ", " , "]),
    header=st.booleans(),
)
def test_any_table_survives(tmp_path, table, separator, header):
    lines = ["x,y,z,intensity,t"] if header else []
    lines += [separator.join(map(repr, row)) for row in table]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    found = read_points(tmp_path / "a.txt")
    assert found.tolist() == table
    assert found.dtype.names[3] == ("intensity" if header else "column_4")
