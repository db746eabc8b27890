"""CompressedPointCloud2 from PointCloud2 and back: layouts, byte orders, previews, refusals."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from geoaccel_ros.compression.codec import Codec, CodecConfig, inspect
from geoaccel_ros.compression.errors import (
    CodecError,
    DeclarationError,
    ForeignFormatError,
    FutureVersionError,
)
from geoaccel_ros.compression.messages import compressed_values, decoded_cloud
from geoaccel_ros.pointcloud.layout import PointField, fields_of
from geoaccel_ros.pointcloud.messages import points_from_message

ROWS, COLUMNS = 8, 40
# Padding before, between and after the fields, which are not in the order of their offsets.
DTYPE = np.dtype(
    {
        "names": ["ring", "x", "y", "z", "intensity"],
        "formats": ["<u2", "<f4", "<f4", "<f4", "<f4"],
        "offsets": [26, 4, 8, 12, 20],
        "itemsize": 32,
    }
)


@pytest.fixture(scope="module")
def codec():
    return Codec(CodecConfig(step=0.02))


def field(name, offset, datatype, count=1):
    return SimpleNamespace(name=name, offset=offset, datatype=datatype, count=count)


def cloud(is_bigendian=False, **changes):
    rng = np.random.default_rng(1)
    points = np.zeros(ROWS * COLUMNS, DTYPE)
    for axis in "xyz":
        points[axis] = rng.uniform(-5, 5, len(points))
    points["intensity"] = rng.integers(0, 100, len(points))
    points["ring"] = np.arange(len(points)) // COLUMNS
    points["x"][7] = np.nan
    fields = [field(f.name, f.offset, f.datatype, f.count) for f in fields_of(DTYPE)]
    sent = np.zeros(len(points), DTYPE.newbyteorder(">" if is_bigendian else "<"))
    for name in DTYPE.names:
        sent[name] = points[name]
    values = {
        "header": SimpleNamespace(frame_id="lidar"),
        "height": ROWS,
        "width": COLUMNS,
        "fields": fields,
        "is_bigendian": is_bigendian,
        "point_step": DTYPE.itemsize,
        "row_step": COLUMNS * DTYPE.itemsize,
        "is_dense": False,
        "data": np.frombuffer(sent.tobytes(), np.uint8),
    }
    return SimpleNamespace(**(values | changes)), points


def compressed(message, codec):
    data = codec.encode(points_from_message(message), message.height)
    return SimpleNamespace(**compressed_values(message), compressed_data=np.frombuffer(data, "u1"))


def restored(values, points):
    return SimpleNamespace(**values, data=np.frombuffer(points.tobytes(), np.uint8))


@pytest.mark.parametrize("is_bigendian", [False, True])
def test_all_of_a_message_comes_back_as_it_was(is_bigendian):
    message, points = cloud(is_bigendian)
    exact = Codec(CodecConfig(lossless=("x", "y", "z")))
    back = restored(*decoded_cloud(compressed(message, exact), exact))
    assert np.array_equal(back.data, message.data)
    del back.data, message.data
    assert vars(back) == vars(message)


def test_big_endian_values_are_within_half_a_step(codec):
    message, points = cloud(True)
    scan = Codec(CodecConfig(step=0.02, mode="scan"))
    back = points_from_message(restored(*decoded_cloud(compressed(message, scan), codec)))
    assert np.array_equal(back["ring"], points["ring"])
    assert 0.005 < np.nanmax(np.abs(back["y"] - points["y"])) <= 0.01001


def test_fields_without_a_name_or_with_the_same_come_back(codec):
    message, _ = cloud()
    message.fields = [*message.fields, field("", 30, 4), field("x", 16, 7), field("few", 28, 2, 0)]
    values, points = decoded_cloud(compressed(message, codec), codec)
    assert values["fields"] == message.fields
    assert points.dtype.names == ("x", "y", "z", "intensity", "ring", "x_2", "few")


def test_an_empty_cloud_has_the_rows_that_it_had(codec):
    message, _ = cloud(height=0, width=0, row_step=0, data=np.empty(0, "u1"))
    values, points = decoded_cloud(compressed(message, codec), codec)
    assert (values["width"], values["row_step"], len(points)) == (0, 0, 0)


def test_a_level_has_the_centres_of_its_cells_alone(codec):
    message, points = cloud()
    octree = Codec(CodecConfig(step=0.02, mode="octree"))
    sent = compressed(message, octree)
    info = inspect(bytes(sent.compressed_data))
    values, cells = decoded_cloud(sent, codec, info.depth - 4)
    assert [(f.name, f.offset, f.datatype) for f in values["fields"]] == [
        ("x", 0, 7), ("y", 4, 7), ("z", 8, 7),
    ]  # fmt: skip
    assert (values["point_step"], values["row_step"]) == (12, 12 * len(cells))
    assert (values["height"], values["width"], values["is_dense"]) == (1, len(cells), True)
    assert 10 < len(cells) < len(points)
    finite = points[np.isfinite(points["x"])]
    apart = [np.abs(finite[axis][:, None] - cells[axis]) for axis in "xyz"]
    # Half of a cell of 16 steps, in the cell that holds the point on all three axes.
    assert np.max(np.min(np.max(apart, axis=0), axis=1)) <= 0.02 * 16 / 2 + 1e-5
    # The message's own fields are not changed.
    assert message.fields[0].offset == 4


@pytest.mark.parametrize("level", [-1, 21])
def test_all_levels_are_the_whole_cloud(codec, level):
    message, points = cloud()
    octree = Codec(CodecConfig(step=0.02, mode="octree"))
    values, back = decoded_cloud(compressed(message, octree), codec, level)
    assert sorted(back["intensity"]) == sorted(points["intensity"])
    assert values["fields"] == message.fields and values["is_dense"] is False


def test_a_scan_is_decoded_whole_at_any_level(codec):
    message, points = cloud()
    scan = Codec(CodecConfig(step=0.02, mode="scan"))
    values, back = decoded_cloud(compressed(message, scan), codec, 2)
    assert (values["height"], values["width"]) == (ROWS, COLUMNS)
    assert np.array_equal(back["ring"], points["ring"])


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"format": "draco"}, ForeignFormatError),
        ({"format": "geoaccel/9"}, FutureVersionError),
        ({"width": COLUMNS - 1}, DeclarationError),
        ({"point_step": 33}, DeclarationError),
        ({"point_step": 2}, DeclarationError),
        ({"fields": []}, DeclarationError),
        ({"fields": [field("x", 0, 77)]}, DeclarationError),
        ({"fields": [PointField("y", 4, 7)]}, DeclarationError),
    ],
)
def test_what_is_wrong_with_a_message_is_told_apart(codec, changes, kind):
    sent = compressed(cloud()[0], codec)
    vars(sent).update(changes)
    with pytest.raises(kind) as caught:
        decoded_cloud(sent, codec)
    assert "\n" not in str(caught.value)


def test_streams_of_no_or_another_version_and_damaged_ones(codec):
    sent = compressed(cloud()[0], codec)
    good = bytes(sent.compressed_data)
    future = copy.copy(sent)
    future.compressed_data = good[:4] + b"\x09" + good[5:]
    with pytest.raises(FutureVersionError, match="version 9, known are 1 to 2"):
        decoded_cloud(future, codec)
    for data in b"", good[:4], good[:50], good[:-1], good[:-1] + bytes([good[-1] ^ 1]):
        sent.compressed_data = data
        with pytest.raises(CodecError) as caught:
            decoded_cloud(sent, codec)
        assert type(caught.value) is CodecError and "\n" not in str(caught.value)


def test_a_mutated_message_is_decoded_or_refused(codec):
    """Anything in a message may be wrong: a cloud, or a CodecError of one line."""
    rng = np.random.default_rng(7)
    encoders = [Codec(CodecConfig(step=0.02, mode=mode)) for mode in ("octree", "scan")]
    sent = [compressed(cloud()[0], encoder) for encoder in encoders]
    numbers = [0, 1, 3, 7, 8, COLUMNS + 1, 2**16, 2**31 - 1, 2**32 - 1]
    refused = 0
    for round_ in range(600):
        message = copy.deepcopy(sent[round_ % 2])
        field_ = message.fields[rng.integers(len(message.fields))]
        for kind in rng.integers(6, size=rng.integers(1, 4)):
            number = int(rng.choice(numbers))
            if kind == 0:
                setattr(message, rng.choice(["height", "width", "point_step", "row_step"]), number)
            elif kind == 1:
                setattr(field_, rng.choice(["offset", "datatype", "count"]), number)
            elif kind == 2:
                field_.name = str(rng.choice(["x", "", "é", "y" * 300, "x_2"]))
            elif kind == 3:
                message.is_bigendian = not message.is_bigendian
            elif kind == 4:
                message.format = str(rng.choice(["geoaccel", "geoaccel/1", "geoaccel/3", "", "é"]))
            else:
                data = np.array(message.compressed_data)
                data[rng.integers(len(data))] ^= 1 << rng.integers(8)
                message.compressed_data = data
        try:
            values, points = decoded_cloud(message, codec, int(rng.integers(-1, 22)))
        except CodecError as error:
            refused += 1
            assert str(error) and "\n" not in str(error)
        else:
            assert values["height"] * values["width"] == len(points)
            assert values["point_step"] == points.dtype.itemsize
    assert 300 < refused < 600
