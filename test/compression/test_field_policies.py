"""compression/policies.py: what becomes of each field, by name and type and as told."""

import numpy as np
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.policies import FieldsConfig, field_steps
from geoaccel_ros.config import ConfigurationError

XYZ = [("x", "<f4"), ("y", "<f4"), ("z", "<f4")]


def cloud(*fields, count=100):
    """Return points on a line whose other fields are the given (name, values)."""
    dtype = XYZ + [
        (name, np.asarray(values).dtype, np.shape(values)[1:]) for name, values in fields
    ]
    points = np.zeros(count, dtype)
    points["x"] = 1 + np.arange(count)
    for name, values in fields:
        points[name] = values
    return points


def steps(points, **config):
    return field_steps(points, FieldsConfig(**config))


def test_what_is_no_time_is_exact():
    points = cloud(
        ("intensity", np.float32(0.3)),
        ("ring", np.uint16(3)),
        ("rgb", np.float32(1e-38)),
        ("label", np.int32(-1)),
        ("curvature", np.float64(0.1)),
        ("t", np.uint32(50_000)),
    )
    expected = ("intensity", "ring", "rgb", "label", "curvature", "t")
    assert steps(points) == dict.fromkeys(expected, 0.0)


@pytest.mark.parametrize(
    ("name", "times", "step"),
    [
        ("time", np.linspace(-0.1, 0, 100, dtype=np.float32), 1e-6),
        ("Time", np.linspace(-0.1, 0, 100, dtype=np.float64), 1e-6),
        ("timestamp", 1.7e9 + np.linspace(0, 0.1, 100), 1e-6),
        # Seconds of more than a sweep: of a merged scan, of a map.
        ("time", np.linspace(0, 1.02, 100), 1e-6),
        ("time", np.linspace(0, 1800, 100), 1e-6),
        ("time", np.linspace(0, 5e5, 100), 1e-6),
        ("time", np.linspace(0, 1.02, 100, dtype=np.float32), 1e-6),
        # A float32 resolves 1e-4 at 1800, as seconds or as milliseconds.
        ("time", np.linspace(0, 1800, 100, dtype=np.float32), 0.0),
        # Livox: nanoseconds since 1970, of which a double resolves 256.
        ("timestamp", 1.7e18 + np.linspace(0, 1e8, 100), 0.0),
        ("t", np.linspace(0, 99, 100), 1e-6),
        ("t", np.linspace(0, 99, 100, dtype=np.float32), 0.0),
        ("offset_time", np.linspace(0, 99_000, 100, dtype=np.float32), 0.0),
        # Too coarse by itself: 128 s since 1970, a float32.
        ("time", np.float32(1.7e9) + np.float32(256) * np.arange(100, dtype=np.float32), 0.0),
        # Float32 microseconds within a sweep at 30 s resolve 2 of them.
        ("time", 3e7 + np.linspace(0, 1e5, 100, dtype=np.float32), 0.0),
        ("time", np.zeros(100, np.float32), 1e-6),
        ("time", np.full((100, 2), 0.01, np.float32), 0.0),
        ("depth", np.linspace(0, 0.1, 100, dtype=np.float32), 0.0),
        ("time", np.linspace(0, 1e5, 100).astype(np.uint32), 0.0),
    ],
)
def test_times_in_floats_are_kept_to_a_millionth_of_their_unit(name, times, step):
    assert steps(cloud((name, times))) == {name: step}


def test_what_is_told_goes_first():
    times = np.linspace(-0.1, 0, 100, dtype=np.float32)
    points = cloud(("intensity", np.float32(200)), ("time", times), ("range", np.uint32(70_000)))
    told = steps(points, lossless=("time",), quantise=("intensity=0.5", "range=4"))
    assert told == {"intensity": 0.5, "time": 0.0, "range": 4.0}


def test_an_equals_sign_may_be_in_a_name():
    assert steps(cloud(("a=b", np.float32(1))), quantise=("a=b=0.1",)) == {"a=b": 0.1}


@pytest.mark.parametrize("item", ["intensity", "=1", "intensity=", "intensity=0", "a=-1", "a=nan"])
def test_no_name_and_step_is_refused(item):
    with pytest.raises(ConfigurationError, match=r"'quantise' has .*name=step"):
        FieldsConfig(quantise=(item,))


@pytest.mark.parametrize("name", ["x", "y", "z"])
def test_coordinates_have_no_steps_of_their_own(name):
    told = f"'quantise' has '{name}=0.1': x, y and z have no steps of their own, they go by 'step'$"
    with pytest.raises(ConfigurationError, match=told):
        FieldsConfig(quantise=("intensity=1", f"{name}=0.1"))


@pytest.mark.parametrize("names", [("",), ("time", "")])
def test_an_empty_name_is_refused(names):
    with pytest.raises(ConfigurationError, match=r"^parameter 'lossless' has an empty name"):
        FieldsConfig(lossless=names)


@pytest.mark.parametrize(
    "config",
    [{"quantise": ("a=1", "a=2")}, {"quantise": ("a=1",), "lossless": ("a",)}],
)
def test_a_field_told_twice_is_refused(config):
    with pytest.raises(ConfigurationError, match="field 'a'"):
        FieldsConfig(**config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"lossless": ("intensty",)},
            "^no field 'intensty' that 'lossless' names; the cloud has x y z intensity ring rgb",
        ),
        (
            {"quantise": ("curvature=1",)},
            "^no field 'curvature' that 'quantise' names; the cloud has x y z intensity ring rgb",
        ),
        ({"quantise": ("rgb=0.1",)}, "'rgb' holds packed colours"),
        ({"quantise": ("ring=0.5",)}, "'ring' holds integers"),
        ({"quantise": ("far=0.01",)}, r"'far' reaches 1e\+06, where float32 does not resolve"),
        ({"quantise": ("intensity=1e-20",)}, "'intensity' reaches 0.25, where float32"),
    ],
)
def test_what_cannot_be_done_is_refused(config, message):
    points = cloud(
        ("intensity", np.float32(0.25)),
        ("ring", np.uint16(3)),
        ("rgb", np.float32(0)),
        ("far", np.float32(1e6)),
    )
    with pytest.raises(CodecError, match=message):
        steps(points, **config)


def test_a_step_is_judged_by_the_finite_values():
    points = cloud(("intensity", np.where(np.arange(100) % 2, np.inf, 1).astype(np.float32)))
    assert steps(points, quantise=("intensity=0.1",)) == {"intensity": 0.1}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("type_", "value"), [("<f4", 3.3e38), (">f4", -3.3e38), ("<f8", 1.7e308)])
def test_a_step_may_be_as_large_as_a_double(type_, value):
    points = cloud(("huge", np.full(100, value, type_)))
    assert steps(points, quantise=("huge=1.79e308",)) == {"huge": 1.79e308}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [3.3e38, -3.3e38])
def test_a_step_whose_multiples_the_type_does_not_reach_is_refused(value):
    points = cloud(("huge", np.full(100, value, "<f4")))
    with pytest.raises(CodecError, match=r"'huge' reaches 3.3e\+38, .* beyond float32"):
        steps(points, quantise=("huge=4e38",))
    assert steps(points, quantise=("huge=3e38",)) == {"huge": 3e38}


def overlapping(*fields):
    """Return points whose x, y and z begin at bytes 0, 4 and 8, others as (name, type, byte)."""
    all_fields = [(name, type_, 4 * i) for i, (name, type_) in enumerate(XYZ)] + [*fields]
    names, types, offsets = zip(*all_fields, strict=True)
    return np.zeros(10, {"names": names, "formats": types, "offsets": offsets, "itemsize": 32})


TIME_BITS = ("time", "<f8", 12), ("bits", "<u4", 16)
EXACT = ("x", "y", "z")


@pytest.mark.parametrize(
    ("fields", "config", "message"),
    [
        (TIME_BITS, {}, "field 'time' is rounded and .* 'bits': name it in lossless"),
        (TIME_BITS, {"lossless": EXACT}, "field 'time' .* 'bits': name it in lossless"),
        (TIME_BITS[::-1], {}, "field 'time' .* 'bits': name it in lossless"),
        ([("a", "<f4", 16), ("b", "<f4", 18)], {"quantise": ("b=1",)}, "'b' .* 'a': do not quant"),
        ([("a", "<f4", 0)], {"quantise": ("a=1",)}, "'x' .* 'a': name x, y and z in lossless"),
        ([("last", "u1", 11)], {}, "field 'z' .* 'last': name x, y and z in lossless"),
        ([("xyz", ("<f4", (3,)), 0)], {}, "field 'x' .* 'xyz': name x, y and z in lossless"),
    ],
)
def test_a_field_that_shares_bytes_with_a_rounded_one_is_refused(fields, config, message):
    with pytest.raises(CodecError, match=message):
        steps(overlapping(*fields), **config)


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ([("rgb", "<f4", 16), ("rgba", "<u4", 16)], {}),
        (TIME_BITS, {"lossless": ("time",)}),
        ([("xyz", ("<f4", (3,)), 0)], {"lossless": EXACT}),
        # Side by side.
        ([("time", "<f4", 12), ("a", "u1", 16)], {"quantise": ("a=2",)}),
    ],
)
def test_fields_that_share_bytes_and_are_exact_are_fine(fields, config):
    points = overlapping(*fields)
    assert set(steps(points, **config)) == {name for name, *_ in fields}
