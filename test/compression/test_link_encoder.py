"""What is given up for a link, in which order, and that streams of real clouds keep to it."""

import dataclasses
import math
import re

import numpy as np
import pytest

from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError
from geoaccel_ros.compression.ladder import LinkConfig, Rung, ladder
from geoaccel_ros.compression.link_encoder import LinkEncoder
from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.pointcloud.layout import dtype_of, fields_of, packed_dtype

DTYPE = packed_dtype(
    [("x", "f4"), ("y", "f4"), ("z", "f4"), ("intensity", "f4"), ("ring", "u2"), ("noise", "u4")]
)
ENVELOPE = 200
PERIOD = 0.1


def room(count, seed=0):
    """Return points of walls with noise of a centimetre."""
    random = np.random.default_rng(seed)
    points = np.zeros(count, DTYPE)
    turn = np.sort(random.uniform(0, 2 * np.pi, count))
    reach = 8 / np.maximum(np.abs(np.cos(turn)), np.abs(np.sin(turn)))
    points["x"] = reach * np.cos(turn) + random.normal(0, 0.01, count)
    points["y"] = reach * np.sin(turn) + random.normal(0, 0.01, count)
    points["z"] = random.uniform(-1, 2, count)
    points["intensity"] = random.uniform(0, 100, count)
    points["ring"] = np.arange(count) % 16
    points["noise"] = random.integers(0, 2**12, count)
    return points


class Link:
    """A link encoder whose clock is set, and what it sent."""

    def __init__(self, codec, **options):
        self.now = 0.0
        self.encoder = LinkEncoder(codec, LinkConfig(**options), lambda: self.now)
        self.sent, self.left_out, self.over = [], 0, 0

    def run(self, clouds, points):
        for _ in range(clouds):
            encoded = self.encoder.encode(points, 1, ENVELOPE)
            if encoded is None:
                self.left_out += 1
            elif self.encoder.admit(ENVELOPE + len(encoded.data)):
                self.sent.append((self.now, encoded))
            else:
                self.over += 1
            self.now = round(self.now + PERIOD, 6)
        return self

    def largest_window(self):
        return max(
            sum(ENVELOPE + len(e.data) for t, e in self.sent if begin <= t <= begin + 2.0)
            for begin, _ in self.sent
        )


@pytest.fixture(scope="module")
def codec():
    return Codec(CodecConfig())


def test_the_ladder_is_in_the_order_that_is_documented():
    config = LinkConfig(
        target_bytes_per_s=1.0,
        step=0.01,
        max_step=0.03,
        quantise=("intensity=0.5",),
        optional=("ring", "noise"),
    )
    root = math.sqrt(2)
    steps = [0.01, 0.01 * root, 0.02, 0.02 * root, 0.03]
    assert ladder(config) == [
        *(Rung(pytest.approx(step)) for step in steps[:-1]),
        Rung(0.03),
        Rung(0.03, 2),
        Rung(0.03, 4),
        Rung(0.03, 8),
        Rung(0.03, 8, True),
        Rung(0.03, 8, True, ("ring",)),
        Rung(0.03, 8, True, ("ring", "noise")),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"target_bytes_per_s": 0.0}, [Rung(0.01)]),
        ({"max_step": 0.01, "mode": "scan"}, [Rung(0.01)]),
        ({"max_step": 0.01}, [Rung(0.01), Rung(0.01, is_merged=True)]),
        ({"max_step": 0.01, "duplicates": "merge"}, [Rung(0.01)]),
        ({"max_step": 0.012, "mode": "scan"}, [Rung(0.01), Rung(0.012)]),
        # Nothing between a step and its double but the root; no rung beside the last.
        ({"max_step": 0.02, "mode": "scan"}, [Rung(0.01), Rung(0.01 * 2**0.5), Rung(0.02)]),
    ],
)
def test_the_ladder_leaves_out_what_there_is_not(options, expected):
    assert ladder(LinkConfig(**{"target_bytes_per_s": 1.0, **options})) == expected


def test_a_rung_tells_the_codec_its_part():
    config = LinkConfig(
        target_bytes_per_s=1.0,
        mode="octree",
        device="cpu",
        lossless=("time", "stamp"),
        quantise=("intensity=0.1", "ring=2"),
        optional=("time",),
    )
    assert Rung(0.05, 4, True, ("time", "ring")).encoding(config) == CodecConfig(
        mode="octree",
        device="cpu",
        lossless=("stamp",),
        quantise=("intensity=0.4",),
        step=0.05,
        duplicates="merge",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 0.2}, r"max_step \(0.1 m\) is below step \(0.2 m\)"),
        ({"target_max_error": 0.1}, "only one of target_max_error and target_bytes_per_s"),
        ({"max_depth": 9}, "target_bytes_per_s and max_depth would both choose the step"),
        ({"lossless": ("x", "y", "z")}, "lossless x y z leave nothing to"),
        ({"optional": ("x",)}, "'optional' has x, y or z"),
        ({"optional": ("a", "b", "a")}, "'optional' has the field 'a' twice"),
        ({"optional": ("a", "")}, r"^parameter 'optional' has an empty name; for no field: \[\]$"),
    ],
)
def test_what_contradicts_a_target_is_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        LinkConfig(target_bytes_per_s=1e6, **options)
    if "step" in options:
        LinkConfig(**options)


def test_without_a_target_clouds_are_as_asked_for(codec):
    points = room(5000)
    link = Link(codec, step=0.02, optional=("nothing",)).run(3, points)
    assert {encoded.info.step for _, encoded in link.sent} == {0.02}
    codec.reconfigure(CodecConfig(step=0.02))
    assert link.sent[0][1].data == codec.encode(points)
    values = link.encoder.values()
    assert values["rate out [Hz]"] == "1.50"
    total = sum(ENVELOPE + len(encoded.data) for _, encoded in link.sent)
    assert values["bytes/s out"] == f"{total / 2:.0f}"
    assert "rung" not in values and link.encoder.shortage() == ""


def test_a_stream_keeps_to_its_target_at_the_step_that_allows_it(codec):
    points = room(5000)[["x", "y", "z", "ring"]]
    free = len(Link(codec).run(1, points).sent[0][1].data)
    target = 10 * 0.85 * free
    link = Link(codec, target_bytes_per_s=target).run(60, points)
    assert len(link.sent) == 60
    assert link.largest_window() <= 2 * target
    late = link.sent[30:]
    assert len({encoded.info.step for _, encoded in late}) == 1
    assert 0.01 < late[0][1].info.step < 0.1
    # The budget is used.
    assert sum(ENVELOPE + len(e.data) for _, e in late) > 0.75 * 3 * target
    for _, encoded in late[:3]:
        decoded, _ = codec.decode(encoded.data)
        assert decoded.dtype == points.dtype and len(decoded) == len(points)
    assert link.encoder.values()["rung"].endswith(" of 8")


def test_optional_fields_are_dropped_where_steps_are_not_enough(codec):
    points = room(5000)
    exact = dict(mode="scan", max_step=0.0101, lossless=("noise",), optional=("intensity", "noise"))
    full = len(Link(codec, **exact).run(1, points).sent[0][1].data)
    # Without intensities, of some 27 bits a point, it fits.
    link = Link(codec, target_bytes_per_s=10 * 0.75 * full, **exact).run(60, points)
    assert len(link.sent) == 60
    encoded = link.sent[-1][1]
    assert encoded.dropped == ("intensity",)
    decoded, _ = codec.decode(encoded.data)
    # What a message declares whose fields are the others, and whose points are as long.
    fields = [field for field in fields_of(DTYPE) if field.name != "intensity"]
    assert decoded.dtype == dtype_of(fields, DTYPE.itemsize)
    assert np.array_equal(decoded["noise"], points["noise"])
    # A field that is lossless by name may be dropped, too.
    link = Link(codec, target_bytes_per_s=10 * 0.3 * full, **exact).run(40, points)
    assert link.sent[-1][1].dropped == ("intensity", "noise")


def test_an_optional_field_that_there_is_not_is_refused(codec):
    link = Link(codec, target_bytes_per_s=1e6, optional=("intensty",))
    with pytest.raises(CodecError, match="no field 'intensty' .* has x y z intensity ring noise"):
        link.run(1, room(10))


def test_a_target_that_cannot_be_held_is_told_with_its_reason(codec):
    points = room(5000)
    last = dict(mode="scan", max_step=0.0101)
    full = len(Link(codec, **last).run(1, points).sent[0][1].data)
    link = Link(codec, target_bytes_per_s=3 * full, **last).run(60, points)
    assert link.largest_window() <= 6 * full
    assert 0.6 * 3 <= len(link.sent) / 6 <= 3.3
    assert link.left_out + link.over + len(link.sent) == 60
    assert link.over <= 1
    told = link.encoder.shortage()
    assert f"target_bytes_per_s of {3 * full} cannot carry all 10.0 clouds a second" in told
    size = ENVELOPE + len(link.sent[-1][1].data)
    assert f"at the coarsest they take about {size} bytes on average, {size} at most" in told
    assert f"where 2 s carry no more than {6 * full};" in told
    assert "of it is field intensity" in told
    assert told.endswith(
        "what helps is a larger target, a step for it in 'quantise', its name in 'optional' or "
        "fewer clouds by max_rate_hz"
    )
    # Not told of a cloud or two.
    link = Link(codec, target_bytes_per_s=3 * full, **last).run(5, points)
    assert link.encoder.shortage() == ""


def test_a_shortage_tells_what_all_clouds_take_not_what_the_newest_does(codec):
    sizes = (1000, 8000)
    last = dict(mode="scan", max_step=0.0101)
    small, large = (
        ENVELOPE + len(Link(codec, **last).run(1, room(count)).sent[0][1].data) for count in sizes
    )
    target = 10 * (small + large) / 2 * 0.8
    link = Link(codec, target_bytes_per_s=target, **last)
    for index in range(80):
        link.run(1, room(sizes[index % 2 == 0]))
    assert link.left_out > 5
    found = re.search(
        r"of (\d+) cannot carry all (\S+) clouds a second: at the coarsest they take about (\d+) "
        r"bytes on average, (\d+) at most, where 2 s carry no more than (\d+);",
        link.encoder.shortage(),
    )
    told, rate, mean, largest, two_seconds = map(float, found.groups())
    # The newest is a small one; the numbers contradict neither the claim nor each other.
    assert mean == pytest.approx((small + large) / 2, rel=0.05)
    # Those that were left out are expected to take as many bytes a point as those that were not.
    assert largest == pytest.approx(large, rel=0.15)
    assert rate * mean > told == pytest.approx(target, abs=0.51)
    assert two_seconds == pytest.approx(2 * told, abs=1)


@pytest.mark.parametrize("target", [0.004, 50.0])
def test_a_target_that_carries_nothing_is_told_as_such(codec, target):
    link = Link(codec, target_bytes_per_s=target, mode="scan", max_step=0.0101)
    link.run(60, room(1000)[["x", "y", "z"]])
    assert not link.sent
    told = link.encoder.shortage()
    assert told.startswith(f"target_bytes_per_s of {target:g} cannot carry any of 10.0 clouds")
    assert told.endswith("what helps is a larger target or a larger max_step")
    assert link.encoder.values()["target [B/s]"] == f"{target:g}"


def test_parameters_change_with_the_next_cloud(codec):
    points = room(2000)
    link = Link(codec, step=0.01).run(2, points)
    link.encoder.reconfigure(dataclasses.replace(link.encoder.config, step=0.05))
    link.run(2, points)
    assert [encoded.info.step for _, encoded in link.sent] == [0.01, 0.01, 0.05, 0.05]


def test_a_window_goes_on_where_another_parameter_changes(codec):
    points = room(5000)
    full = ENVELOPE + len(Link(codec, mode="scan").run(1, points).sent[0][1].data)
    link = Link(codec, target_bytes_per_s=10 * full, mode="scan").run(15, points)
    for step in (0.011, 0.012, 0.013):
        link.encoder.reconfigure(dataclasses.replace(link.encoder.config, step=step))
        link.run(5, points)
    assert link.largest_window() <= 20 * full


def test_a_smaller_target_holds_from_the_change_on_without_a_pause(codec):
    points = room(5000)[["x", "y", "z"]]
    full = ENVELOPE + len(Link(codec, mode="scan").run(1, points).sent[0][1].data)
    for before in 0.0, 100.0 * full:
        link = Link(codec, target_bytes_per_s=before, mode="scan").run(20, points)
        assert len(link.sent) == 20
        link.sent.clear()
        link.encoder.reconfigure(
            dataclasses.replace(link.encoder.config, target_bytes_per_s=8.0 * full)
        )
        link.run(20, points)
        assert len(link.sent) == 20
        assert link.largest_window() <= 16 * full
