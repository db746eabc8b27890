"""Whether a cloud that came is the one that was sent."""

import numpy as np
import pytest

from geoaccel_ros.benchmark.link_comparison import Difference, compare
from geoaccel_ros.compression.codec import Codec, CodecConfig
from geoaccel_ros.pointcloud.layout import packed_dtype


@pytest.fixture
def cloud():
    rng = np.random.default_rng(0)
    fields = [*((axis, "f4") for axis in "xyz"), ("intensity", "f4"), ("ring", "u2")]
    points = np.zeros(500, packed_dtype(fields))
    for axis in "xyz":
        points[axis] = rng.normal(0.0, 40.0, 500)
    points["intensity"] = rng.integers(0, 101, 500).astype("f4") / 100
    points["ring"] = np.arange(500) % 16
    points["x"][7] = np.nan
    return points


def test_a_cloud_is_itself(cloud):
    difference = compare(cloud, cloud.copy())
    assert difference == Difference(changed={}) and difference.is_within(0.0, {})


def test_what_the_codec_may_do_is_sound_and_not_a_bit_more(cloud):
    codec = Codec(CodecConfig(mode="scan", step=0.02, quantise=["intensity=0.05"]))
    decoded, _ = codec.decode(codec.encode(cloud))
    difference = compare(cloud, decoded)
    assert difference.problem == "" and 0.009 < difference.error <= 0.01
    assert 0.0 < difference.changed["intensity"] <= 0.025 * 1.00001
    assert difference.is_within(0.02, {"intensity": 0.05})
    assert not difference.is_within(0.0195, {"intensity": 0.05})
    assert not difference.is_within(0.02, {"intensity": 0.03})
    assert not difference.is_within(0.02, {})


def test_one_wrong_point_is_found(cloud):
    for name, by in (("x", 0.006), ("z", -5.0), ("intensity", 0.01), ("ring", 1)):
        wrong = cloud.copy()
        wrong[name][123] += np.array(by).astype(wrong.dtype[name])
        assert not compare(cloud, wrong).is_within(0.01, {}), name
    nowhere = cloud.copy()
    nowhere["intensity"][[5, 6]] = np.nan
    assert not compare(cloud, nowhere).is_within(0.01, {"intensity": 1.0})
    otherwise = nowhere.copy()
    otherwise["intensity"][8] += np.float32(0.4)
    assert compare(nowhere, otherwise).is_within(0.01, {"intensity": 1.0})
    swapped = cloud.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    assert not compare(cloud, swapped).is_within(0.01, {})


def test_what_cannot_be_compared_is_told(cloud):
    assert compare(cloud, cloud[:-1]).problem == "499 points instead of 500"
    lost = cloud.copy()
    lost["y"][3] = np.inf
    assert compare(cloud, lost).problem == "other coordinates are finite"
    without = cloud[["x", "y", "z", "ring"]]
    assert compare(cloud, without).dropped == ("intensity",)
    assert compare(cloud, without).is_within(0.0, {})
    assert compare(without, cloud).problem == "field 'intensity' was not sent"
    assert not compare(without, cloud).is_within(1.0, {})
