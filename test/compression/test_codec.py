"""compression/codec.py: what is promised of a decoded cloud."""

import array
import dataclasses
from importlib import resources

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoaccel_ros.compression import codec as codec_module
from geoaccel_ros.compression import tables
from geoaccel_ros.compression.codec import Codec, CodecConfig, CodecError, inspect
from geoaccel_ros.compression.device import Device
from geoaccel_ros.compression.rans import EVEN_INDEX
from geoaccel_ros.config import ConfigurationError

pytestmark = pytest.mark.filterwarnings("error")

XYZ = [("x", "<f4"), ("y", "<f4"), ("z", "<f4")]


def cloud(coordinates, dtype=XYZ):
    points = np.zeros(len(coordinates), dtype)
    for axis, column in zip("xyz", np.array(coordinates, float).reshape(-1, 3).T, strict=True):
        points[axis] = column
    return points


def bits(values):
    return values.view(f"{values.dtype.byteorder}u{values.dtype.itemsize}")


def check_promise(codec, points, step):
    """Encode, decode, and compare with the points in the order that the codec states."""
    stream = codec.encode(points)
    decoded, height = codec.decode(stream)
    assert height == 1
    assert decoded.dtype == points.dtype
    assert len(decoded) == len(points)
    order = codec.order(points, stream)
    assert np.array_equal(np.sort(order), np.arange(len(points)))
    if inspect(stream).order_kept:
        assert np.array_equal(order, np.arange(len(points)))
    points = points[order]
    finite = np.all([np.isfinite(points[axis]) for axis in "xyz"], axis=0)
    if not inspect(stream).order_kept:
        assert finite[: np.count_nonzero(finite)].all()
    for name in points.dtype.names:
        if name not in ("x", "y", "z"):
            assert (bits(decoded[name]) == bits(points[name])).all()
            continue
        assert (bits(decoded[name])[~finite] == bits(points[name])[~finite]).all()
        was, now = points[name][finite].astype(float), decoded[name][finite].astype(float)
        # The centre is at most step/2 off; as a coordinate it is rounded to the field's type.
        native = points.dtype[name].newbyteorder("=")
        rounding = np.spacing(np.maximum(abs(was), abs(now)).astype(native)).astype(float)
        assert (abs(was - now) <= step / 2 + rounding).all()
    return decoded


@st.composite
def clouds(draw):
    """Clouds of any layout, with coordinates of any magnitude that the step allows."""
    step = draw(st.sampled_from([0.001, 0.01, 0.05, 1.0]))
    count = draw(st.integers(0, 40))
    kinds = [draw(st.sampled_from(["f4", "f8"])) for _ in "xyz"]
    order = draw(st.sampled_from("<>"))
    codes = ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"]
    extra = draw(st.lists(st.tuples(st.sampled_from(codes), st.integers(1, 3)), max_size=4))
    fields = [(axis, order + kind, 1) for axis, kind in zip("xyz", kinds, strict=True)]
    fields += [(f"field{i}", order + code, n) for i, (code, n) in enumerate(extra)]
    fields = draw(st.permutations(fields))
    names, formats, offsets, end = [], [], [], 0
    for name, code, n in fields:
        end += draw(st.integers(0, 3))
        names.append(name)
        formats.append(code if n == 1 else (code, (n,)))
        offsets.append(end)
        end += n * np.dtype(code).itemsize
    itemsize = end + draw(st.integers(0, 5))
    dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    raw = rng.integers(0, 256, count * itemsize, dtype=np.uint8)
    points = raw.view(dtype) if count else np.empty(0, dtype)
    for axis, kind in zip("xyz", kinds, strict=True):
        extent = draw(st.sampled_from([0.0, 0.01, 1.0, 100.0])) * step * 1000
        # UTM coordinates where the type resolves the step.
        centre = draw(st.sampled_from([0.0, -300.0, *([5.4e6, -8.1e6] if kind == "f8" else [])]))
        values = centre + extent * rng.uniform(-1, 1, count)
        if draw(st.booleans()):
            # On the borders between cells.
            values = (np.round(values / step) + 0.5) * step
        if draw(st.booleans()):
            values[rng.random(count) < 0.2] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        points[axis] = values
    return points, step


@pytest.fixture(scope="module")
def codecs():
    """Return a codec by mode and step."""
    made = {}

    def codec(mode, step):
        if (mode, step) not in made:
            made[mode, step] = Codec(CodecConfig(mode=mode, step=step))
        return made[mode, step]

    return codec


# The codecs keep no state between clouds, so one fixture may serve all examples.
@pytest.mark.parametrize("mode", ["octree", "scan", "auto"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=clouds())
def test_the_promise_holds_for_every_layout(codecs, mode, case):
    points, step = case
    check_promise(codecs(mode, step), points, step)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 255, 256, 257, 65_535, 65_537])
def test_sizes(codec, count):
    rng = np.random.default_rng(count)
    points = cloud(rng.normal(0, 10, (count, 3)))
    decoded = check_promise(codec, points, 0.01)
    assert inspect(codec.encode(points)).points == len(decoded) == count


@pytest.mark.parametrize("count", [1, 2, 100_000])
def test_all_points_in_one_cell_stay_as_many(codec, count):
    points = cloud(np.full((count, 3), [-7.5, 0.25, 3.0]))
    decoded = check_promise(codec, points, 0.01)
    assert (decoded == decoded[0]).all()
    info = inspect(codec.encode(points))
    assert info.cells == (info.mode == "octree")


def test_points_of_a_cell_keep_their_order(octree):
    dtype = [*XYZ, ("index", "<u2")]
    points = cloud(np.repeat([[1, 1, 1], [0, 0, 0]], 3, axis=0), dtype)
    points["index"] = np.arange(6)
    decoded, _ = octree.decode(octree.encode(points))
    assert decoded["index"].tolist() == [3, 4, 5, 0, 1, 2]


def test_points_that_are_not_finite_come_last_and_unchanged(octree):
    dtype = [*XYZ, ("ring", "<u2")]
    points = cloud([[np.nan] * 3, [1, 2, 3], [0, -np.inf, 0], [0, 0, 0], [np.inf, 1, 1]], dtype)
    points["ring"] = np.arange(5)
    decoded = check_promise(octree, points, 0.01)
    assert decoded["ring"].tolist() == [3, 1, 0, 2, 4]
    assert np.isnan(decoded["x"][2]) and decoded["y"][3] == -np.inf and decoded["x"][4] == np.inf
    assert inspect(octree.encode(points)).nonfinite == 3


def test_a_cloud_of_points_that_are_not_finite(codec):
    points = cloud(np.full((4, 3), np.nan))
    decoded, _ = codec.decode(codec.encode(points))
    assert np.isnan(decoded["x"]).all() and len(decoded) == 4


def test_padding_becomes_zero(codec):
    dtype = np.dtype(
        {"names": list("xyz"), "formats": ["<f4"] * 3, "offsets": [4, 8, 16], "itemsize": 32}
    )
    points = np.full(32 * 5, 0xAB, np.uint8).view(dtype)
    for axis in "xyz":
        points[axis] = np.arange(5)
    decoded = check_promise(codec, points, 0.01)
    raw = decoded.view(np.uint8).reshape(5, 32)
    assert (raw[:, [0, 1, 2, 3, 12, 13, 14, 15, *range(20, 32)]] == 0).all()


def test_fields_that_overlap_keep_their_bits(codec):
    # PCL's rgb is the same four bytes as rgba.
    dtype = np.dtype(
        {
            "names": ["x", "y", "z", "rgb", "rgba"],
            "formats": ["<f4"] * 4 + ["<u4"],
            "offsets": [0, 4, 8, 16, 16],
            "itemsize": 32,
        }
    )
    points = cloud(np.arange(30).reshape(10, 3), dtype)
    points["rgba"] = np.arange(10) * 0x11111111 % 2**32
    decoded = check_promise(codec, points, 0.01)
    assert decoded["rgba"].tolist() == points["rgba"].tolist()


def test_a_view_of_every_second_point_is_a_cloud(codec):
    points = cloud(np.random.default_rng(4).normal(0, 5, (1000, 3)))
    check_promise(codec, points[::2], 0.01)
    check_promise(codec, points[::-3], 0.01)


def test_decoding_again_changes_nothing(codec):
    points = cloud(np.random.default_rng(5).normal(0, 30, (5000, 3)))
    once, _ = codec.decode(codec.encode(points))
    twice, _ = codec.decode(codec.encode(once))
    assert (once == twice).all()


def test_one_outlier_does_not_cost_the_others_their_accuracy(codec):
    points = cloud(np.random.default_rng(6).normal(0, 5, (500, 3)))
    points["x"][7] = 500.0
    check_promise(codec, points, 0.01)


def test_the_bytes_are_the_same_from_every_kind_of_device(codec, monkeypatch):
    opened = Device.open()
    other = dataclasses.replace(opened, is_cpu=False, has_fp64=False)
    monkeypatch.setattr(codec_module.Device, "open", lambda *_: other)
    rng = np.random.default_rng(7)
    mode = inspect(codec.encode(cloud([[0, 0, 0]]))).mode
    without_fp64 = Codec(CodecConfig(mode=mode))
    for count in 1, 1000, 50_000:
        points = cloud(rng.normal(0, 20, (count, 3)), [*XYZ, ("intensity", "<u2")])
        points["intensity"] = 100 * np.hypot(points["x"], points["y"])
        stream = codec.encode(points)
        assert without_fp64.encode(points) == stream
        assert (without_fp64.decode(stream)[0] == codec.decode(stream)[0]).all()


@pytest.mark.parametrize("local_kib", [1, 16, 48])
@pytest.mark.parametrize("group_size", [32, 1024])
def test_the_bytes_are_the_same_with_less_local_memory_and_other_groups(
    codec, local_kib, group_size
):
    mode = inspect(codec.encode(cloud([[0, 0, 0]]))).mode
    capped = Codec(CodecConfig(mode=mode, max_local_kib=local_kib, max_group_size=group_size))
    points = cloud(np.random.default_rng(7).normal(0, 9, (20_000, 3)), [*XYZ, ("t", "<u4")])
    points["t"] = np.arange(len(points)) * 55
    # Half of them in a region as small as a leaf.
    points[::2] = points[0]
    stream = codec.encode(points)
    assert capped.encode(points) == stream
    assert (capped.decode(stream)[0] == codec.decode(stream)[0]).all()


def test_nothing_of_a_cloud_leaks_into_the_next(codec):
    rng = np.random.default_rng(8)
    big, small = cloud(rng.normal(0, 50, (30_000, 3))), cloud(rng.normal(0, 1, (100, 3)))
    alone = codec.encode(small)
    codec.decode(codec.encode(big))
    assert codec.encode(small) == alone


def test_no_device_memory_is_allocated_for_a_cloud_of_the_same_kind(monkeypatch):
    codec = Codec(CodecConfig(mode="auto"))
    points = cloud(np.random.default_rng(9).normal(0, 50, (100_000, 3)), [*XYZ, ("t", "<u4")])
    points["t"] = np.arange(len(points))
    codec.decode(codec.encode(points))

    def refuse(*_):
        raise AssertionError("a buffer was allocated")

    monkeypatch.setattr("pyopencl.Buffer", refuse)
    codec.decode(codec.encode(points))


def sizes_by_step(mode, points, steps=(0.1, 0.01, 0.001)):
    return [len(Codec(CodecConfig(mode=mode, step=step)).encode(points)) for step in steps]


@pytest.mark.parametrize("mode", ["octree", "scan"])
def test_a_finer_step_takes_more_bytes(mode):
    sizes = sizes_by_step(mode, ordered_scan())
    assert sizes == sorted(sizes)


def test_a_tenth_of_the_step_takes_ten_bits_a_point_of_noise():
    points = cloud(np.random.default_rng(10).normal(0, 20, (5000, 3)))
    _, coarse, fine = sizes_by_step("octree", points)
    assert 2.7 < 8 * (fine - coarse) / 5000 / np.log2(10) < 3.3


def test_stages_are_those_of_the_last_call(octree):
    stream = octree.encode(cloud([[1, 2, 3]]))
    assert "sort" in octree.stages_ms
    octree.decode(stream)
    assert "sort" not in octree.stages_ms and octree.stages_ms["octree"] >= 0


def ordered_scan(columns=300, rings=16):
    """Return what a spinning lidar sees of a round room, ring by ring."""
    azimuth = np.tile(np.arange(columns) * 2 * np.pi / columns, rings)
    elevation = np.repeat(np.radians(np.linspace(-15, 15, rings)), columns)
    ranges = 5 + np.sin(3 * azimuth) + np.random.default_rng(0).normal(0, 0.01, len(azimuth))
    x, y = ranges * np.cos(azimuth), ranges * np.sin(azimuth)
    return cloud(np.stack([x, y, ranges * np.tan(elevation)], axis=1))


@pytest.mark.parametrize("mode", ["octree", "scan"])
def test_tables_of_ones_own_are_those_that_sections_begin_with(codecs, mode, tmp_path):
    points = ordered_scan()
    shipped = resources.files(tables)
    names = [each.name for each in shipped.iterdir() if each.name.endswith(".bin")]
    for name in names:
        (tmp_path / name).write_bytes(shipped.joinpath(name).read_bytes())
    config = CodecConfig(mode=mode, step=0.01)
    expected = codecs(mode, 0.01).encode(points)
    assert Codec(config, tmp_path).encode(points) == expected
    for name in names:
        (tmp_path / name).write_bytes(
            bytes([EVEN_INDEX]) * len(shipped.joinpath(name).read_bytes())
        )
    ignorant = Codec(config, tmp_path)
    stream = ignorant.encode(points)
    assert len(stream) > len(expected)
    np.testing.assert_array_equal(
        ignorant.decode(stream)[0], codecs(mode, 0.01).decode(expected)[0]
    )


def test_auto_takes_the_smaller_stream(octree, scan):
    auto = Codec(CodecConfig(mode="auto"))
    in_order = ordered_scan()
    shuffled = np.random.default_rng(1).permutation(in_order)
    for points, mode in (in_order, "scan"), (shuffled, "octree"):
        stream = auto.encode(points)
        assert inspect(stream).mode == mode
        assert stream == min(octree.encode(points), scan.encode(points), key=len)


@pytest.mark.parametrize("map_begins", [100, 2**19])
def test_auto_codes_no_mode_that_is_clearly_worse(octree, scan, monkeypatch, map_begins):
    monkeypatch.setattr(codec_module, "MOST_OF_SWEEP", map_begins)
    # Noise on walls, which the octree codes in half the bits, and a scan the other way round.
    walls = np.random.default_rng(2).uniform(-10, 10, (40_000, 3))
    walls[:, 2] = np.sign(walls[:, 2]) * 5
    auto = Codec(CodecConfig())
    stream = auto.encode(cloud(walls))
    assert stream == octree.encode(cloud(walls))
    assert len(stream) < len(scan.encode(cloud(walls))) / 1.5
    assert "octree" in auto.stages_ms and "fields" in auto.stages_ms
    if map_begins > len(walls):
        assert "scan" not in auto.stages_ms
    rings = ordered_scan(2500)
    stream = auto.encode(rings)
    assert stream == scan.encode(rings)
    assert len(stream) < len(octree.encode(rings)) / 1.5
    if map_begins > len(rings):
        assert "octree" not in auto.stages_ms


@pytest.mark.parametrize("in_order", [True, False])
def test_auto_minds_the_fields_too(octree, scan, in_order):
    # Coordinates that the octree codes in fewer bytes, and fields that are nothing in their order.
    xyz = np.random.default_rng(3).uniform(-10, 10, (20_000, 3))
    xyz[:, 2] = np.sign(xyz[:, 2]) * 5
    points = cloud(xyz, [*XYZ, ("t", "<u4"), ("number", "<u4")])
    points["t"] = 1000 * np.arange(len(points)) if in_order else 7
    points["number"] = np.arange(len(points)) if in_order else 8
    stream = Codec(CodecConfig()).encode(points)
    assert inspect(stream).mode == ("scan" if in_order else "octree")
    assert stream == min(octree.encode(points), scan.encode(points), key=len)


def test_auto_falls_back_on_the_mode_that_can():
    # More than 2**21 cells: the octree refuses.
    points = cloud([[0, 0, 0], [3e4, 0, 0]])
    assert inspect(Codec(CodecConfig()).encode(points)).mode == "scan"


def test_beams_are_stored_where_they_pay(octree):
    rings = octree.encode(ordered_scan(rings=32))
    assert inspect(rings).bytes_by_section["beams"] > 0
    # A plane's rows look like rings, but tell less than they cost.
    x, y = np.meshgrid(np.linspace(0, 2, 100), np.linspace(-1, 1, 100))
    plane = octree.encode(cloud(np.stack([x, y, 0.5 * x + 0.5 * y], axis=2).reshape(-1, 3)))
    assert inspect(plane).bytes_by_section["beams"] == 0


@pytest.mark.parametrize("highest", [80, 88, 89, 90])
def test_beams_that_point_up_are_left_out(octree, highest):
    elevation = np.radians(np.linspace(0, highest, 32))[:, None]
    azimuth = np.linspace(0, 2 * np.pi, 900, endpoint=False)[None]
    ranges = 30 + 0.01 * np.random.default_rng(0).normal(size=(32, 900))
    rho, z = ranges * np.cos(elevation), ranges * np.sin(elevation)
    dome = np.stack([rho * np.cos(azimuth), rho * np.sin(azimuth), z + 0 * azimuth], axis=2)
    points = cloud(dome.reshape(-1, 3), [*XYZ, ("ring", "<u2")])
    points["ring"] = np.repeat(np.arange(32), 900)
    check_promise(octree, points, 0.01)
    assert inspect(octree.encode(points)).bytes_by_section["beams"] > 0


def test_identical_points_at_the_finest_step():
    check_promise(Codec(CodecConfig(mode="octree", step=1e-6)), cloud([[1.2345] * 3] * 100), 1e-6)


def test_a_scan_keeps_order_and_rows(scan):
    points = ordered_scan()
    points["x"][[5, 77, 4000]] = np.nan
    stream = scan.encode(points, height=16)
    decoded, height = scan.decode(stream)
    assert height == inspect(stream).height == 16
    assert inspect(stream).order_kept
    finite = np.isfinite(points["x"])
    assert (np.isnan(decoded["x"]) == ~finite).all()
    assert np.abs(decoded["x"] - points["x"])[finite].max() < 0.00501
    assert (decoded["y"][~finite] == points["y"][~finite]).all()


def test_lossless_coordinates_keep_every_bit():
    codec = Codec(CodecConfig(lossless=("x", "y", "z")))
    points = cloud(np.random.default_rng(2).normal(0, 5, (999, 3)), [*XYZ, ("ring", "<u2")])
    points["ring"] = np.arange(999) % 7
    points["z"][3], points["y"][4] = -np.inf, np.nan
    stream = codec.encode(points, height=9)
    decoded, height = codec.decode(stream)
    assert decoded.tobytes() == points.tobytes() and height == 9
    assert inspect(stream).mode == "lossless" and inspect(stream).step == 0


def test_merged_duplicates_are_the_first_points_of_their_cells():
    codec = Codec(CodecConfig(duplicates="merge", step=1.0))
    points = cloud([[0, 0, 0], [5, 5, 5], [0.2, 0, 0], [5, 5.2, 5]], [*XYZ, ("label", "<u2")])
    points["label"] = [1, 2, 3, 4]
    stream = codec.encode(points)
    decoded, _ = codec.decode(stream)
    assert decoded.tolist() == [(0, 0, 0, 1), (5, 5, 5, 2)]
    assert (inspect(stream).source_points, inspect(stream).points) == (4, 2)
    assert codec.order(points, stream).tolist() == [0, 1]


def test_a_preview_is_a_small_part_of_the_cloud():
    codec = Codec(CodecConfig(duplicates="merge", max_depth=7))
    points = cloud(np.random.default_rng(3).uniform(-5, 5, (30_000, 3)) * [1, 1, 0.01])
    stream = codec.encode(points)
    info = inspect(stream)
    # 10 m are 1024 cells of 1 cm: 8 times as large, 2**7 hold them.
    assert (info.step, info.depth) == (0.08, 7)
    assert points.nbytes > 20 * len(stream)
    decoded, _ = codec.decode(stream)
    kept = points[codec.order(points, stream)]
    assert max(np.abs(kept[axis] - decoded[axis]).max() for axis in "xyz") <= 0.0401


def test_an_octree_is_decoded_down_to_any_level(octree):
    points = cloud(np.random.default_rng(4).normal(0, 3, (4000, 3)))
    stream = octree.encode(points)
    info = inspect(stream)
    exact = np.stack([octree.decode(stream)[0][axis] for axis in "xyz"]).astype(float)
    cells = np.rint(exact / 0.01 - np.array(info.origin)[:, None] / 0.01).astype(int)
    for level in range(info.depth + 1):
        coarse = octree.decode_level(stream, level)
        edge = 2 ** (info.depth - level)
        parents = np.unique(cells // edge, axis=1)
        centres = np.array(info.origin)[:, None] + (parents * edge + (edge - 1) / 2) * 0.01
        decoded = np.stack([coarse[axis] for axis in "xyz"])
        assert decoded.shape == centres.shape
        order, expected = np.lexsort(decoded.round(3)), np.lexsort(centres.round(3))
        assert np.abs(decoded[:, order] - centres[:, expected]).max() < 1e-5


def test_levels_of_what_has_none_are_refused(octree, scan):
    points = cloud([[1, 2, 3], [2, 2, 2]])
    with pytest.raises(CodecError, match="level 99 of a stream whose levels are 0 to"):
        octree.decode_level(octree.encode(points), 99)
    with pytest.raises(CodecError, match="of mode scan, where one of mode octree is needed"):
        octree.decode_level(scan.encode(points), 1)


@pytest.mark.parametrize("mode", ["octree", "scan"])
@pytest.mark.parametrize("bits", [6, 12, 25])
def test_bits_a_point_meet_their_target(mode, bits):
    points = ordered_scan(600)
    stream = Codec(CodecConfig(mode=mode, target_bits_per_point=bits)).encode(points)
    assert abs(8 * len(stream) / len(points) - bits) <= 0.05 * bits


def test_bytes_a_second_meet_their_target():
    points = ordered_scan(600)
    config = CodecConfig(target_bytes_per_s=100_000.0, clouds_per_s=20.0)
    assert abs(len(Codec(config).encode(points)) - 5000) <= 250


@pytest.mark.parametrize("mode", ["octree", "scan"])
def test_errors_meet_their_targets(mode):
    points = ordered_scan(600)
    mean = Codec(CodecConfig(mode=mode, target_mean_error=0.03))
    stream = mean.encode(points)
    decoded, _ = mean.decode(stream)
    errors = np.stack([points[mean.order(points, stream)][a] - decoded[a] for a in "xyz"])
    assert abs(np.linalg.norm(errors, axis=0).mean() - 0.03) <= 0.0015
    largest = Codec(CodecConfig(mode=mode, target_max_error=0.03))
    assert inspect(largest.encode(points)).step == 0.06


def test_a_target_that_no_step_meets_is_refused():
    points = cloud(np.zeros((100, 3)), [*XYZ, ("hash", "<u4")])
    points["hash"] = np.random.default_rng(0).integers(0, 2**32, 100)
    with pytest.raises(CodecError, match="no step meets bits a point of 8: the nearest is"):
        Codec(CodecConfig(target_bits_per_point=8.0)).encode(points)
    with pytest.raises(CodecError, match="no step meets bytes a second of 1000: the nearest is"):
        Codec(CodecConfig(target_bytes_per_s=1000.0)).encode(points)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"target_max_error": 1.0, "target_bits_per_point": 9.0}, "only one of target_max_error"),
        ({"mode": "scan", "duplicates": "merge"}, "belong to mode octree"),
        ({"mode": "scan", "max_depth": 9}, "belong to mode octree"),
        ({"target_max_error": 0.1, "max_depth": 9}, "max_depth would both choose the step"),
        ({"lossless": ("x",)}, "only be lossless together"),
        ({"lossless": ("x", "y", "z"), "mode": "octree"}, "leave nothing to mode octree"),
        ({"lossless": ("x", "y", "z"), "target_mean_error": 1.0}, "leave nothing to"),
    ],
)
def test_parameters_that_contradict_each_other(parameters, message):
    with pytest.raises(ConfigurationError, match=message):
        CodecConfig(**parameters)


def test_any_object_of_bytes_is_decoded(codec):
    stream = codec.encode(cloud([[1, 2, 3]]))
    for data in bytearray(stream), memoryview(stream), array.array("B", stream):
        assert codec.decode(data)[0]["y"] == 2


def test_an_organised_cloud_comes_back_as_one_row(octree):
    points = cloud(np.random.default_rng(12).normal(0, 5, (64, 3)))
    stream = octree.encode(points, height=8)
    assert octree.decode(stream)[1] == inspect(stream).height == 1
    assert not inspect(stream).order_kept


def test_an_empty_cloud_without_rows_comes_back_as_one_row(octree):
    points, height = octree.decode(octree.encode(np.zeros(0, XYZ), height=0))
    assert len(points) == 0 and points.dtype == XYZ and height == 1


@pytest.mark.parametrize(
    ("points", "height", "message"),
    [
        (np.zeros((5, 3), np.float32), 1, r"shape \(N,\)"),
        (np.zeros(5, np.float32), 1, "structured array with fields x y z"),
        (np.zeros(5, XYZ[:2]), 1, "no field z; the cloud has x y"),
        (np.zeros(5, [("x", "i4"), *XYZ[1:]]), 1, "x must be float32 or float64, got int32"),
        (np.zeros(5, [("x", "f4", (2,)), *XYZ[1:]]), 1, "x must be float32 or float64"),
        (np.zeros(5, [*XYZ, ("stamp", "i8")]), 1, "field 'stamp' of type int64.*convert it"),
        (np.zeros(5, [*XYZ, ("half", "f2")]), 1, "field 'half' of type float16"),
        (np.zeros(5, [*XYZ, ("matrix", "f4", (2, 2))]), 1, "not so: matrix"),
        (np.zeros(5, [*XYZ, ("a" * 256, "f4")]), 1, "longer than 255 bytes"),
        (np.zeros(5, XYZ), 2, "5 points cannot lie in 2 rows"),
        (np.zeros(5, XYZ), 0, "5 points cannot lie in 0 rows"),
        (np.zeros(0, XYZ), -1, "0 points cannot lie in -1 rows"),
        (cloud([[4e6, 0, 0]]), 1, "x reaches 4e.06 m, where float32 resolves"),
        (cloud([[3e38, 0, 0]]), 1, "x reaches 3e.38 m"),
        (cloud([[1e300, 0, 0]], [(axis, "<f8") for axis in "xyz"]), 1, "x reaches 1e.300 m"),
        (np.zeros(3_000_000, XYZ), 1, r"needs 34 MiB, more than max_decoded_mib \(32\)"),
    ],
)
def test_what_cannot_be_coded_is_refused_with_the_reason(codec, points, height, message):
    with pytest.raises(CodecError, match=message) as caught:
        codec.encode(points, height)
    assert "\n" not in str(caught.value)


def test_a_budget_that_the_finest_step_does_not_use_up_is_kept():
    points = ordered_scan(50)
    stream = Codec(CodecConfig(target_bytes_per_s=1e9)).encode(points)
    assert len(stream) < points.nbytes and inspect(stream).step < 1e-5


def test_max_depth_holds_a_cloud_of_any_extent():
    codec = Codec(CodecConfig(max_depth=3))
    points = cloud([[0, 0, 0], [37_000, 5, 5]])
    stream = codec.encode(points)
    assert inspect(stream).depth <= 3
    check_promise(codec, points, inspect(stream).step)


def test_cells_beyond_what_a_decoder_allows_are_refused():
    points = cloud([[2**53 - 101, 0, 0]], [(axis, "<f8") for axis in "xyz"])
    with pytest.raises(CodecError, match="too many cells of 1 m"):
        Codec(CodecConfig(mode="scan", step=1.0)).encode(points)


def test_the_order_of_another_cloud_is_refused(codec):
    stream = codec.encode(cloud([[1, 2, 3]] * 5))
    with pytest.raises(CodecError, match="the stream is of 5 points, the cloud has 4"):
        codec.order(cloud([[1, 2, 3]] * 4), stream)


@pytest.mark.parametrize(("mode", "far"), [("octree", 3e4), ("scan", 3e7)])
def test_a_cloud_of_too_many_cells_is_refused_with_a_step_that_serves(mode, far):
    points = cloud([[0, 0, 0], [far, 0, 0]], [(axis, "<f8") for axis in "xyz"])
    with pytest.raises(CodecError, match="x spans .* use a step of at least") as caught:
        Codec(CodecConfig(mode=mode)).encode(points)
    step = float(str(caught.value).split("at least ")[1].split(" m")[0])
    check_promise(Codec(CodecConfig(mode=mode, step=step)), points, step)


def test_a_cloud_beyond_the_decoders_limit_is_refused():
    points = np.zeros(100_000, XYZ)
    stream = Codec(CodecConfig()).encode(points)
    cautious = Codec(CodecConfig(max_decoded_mib=1))
    with pytest.raises(CodecError, match="more than max_decoded_mib"):
        cautious.decode(stream)


def test_bigger_than_the_limit_only_in_sections_is_refused():
    # Many fields over the same bytes.
    names = [f"field{i}" for i in range(200)]
    dtype = np.dtype(
        {
            "names": [*"xyz", *names],
            "formats": ["<f4"] * 203,
            "offsets": [0, 4, 8] + [0] * 200,
            "itemsize": 12,
        }
    )
    cautious = Codec(CodecConfig(max_decoded_mib=1))
    with pytest.raises(CodecError, match="more than max_decoded_mib"):
        cautious.encode(np.zeros(20_000, dtype))


@pytest.mark.parametrize("key", ["ring", "row"])
@pytest.mark.parametrize("step", [1, 2, 100])
@pytest.mark.parametrize("exact", [False, True], ids=["to the step", "lossless"])
def test_a_rounded_ring_is_no_order_of_the_points(key, step, exact):
    """The decoder has the rounded rings alone: by the exact ones it would not find the points."""
    rings, columns = 16, 200
    ring, column = np.tile(np.arange(rings), columns), np.repeat(np.arange(columns), rings)
    azimuth = 2 * np.pi * column / columns
    dtype = [*((axis, "f4") for axis in "xyz"), (key, "u2"), ("intensity", "u1")]
    points = np.zeros(ring.size, dtype)
    flat = 5 + ring + 0.1 * np.random.default_rng(3).random(ring.size)
    points["x"], points["y"] = flat * np.cos(azimuth), flat * np.sin(azimuth)
    points["z"], points[key], points["intensity"] = 0.3 * ring, ring, column % 50
    lossless = ("x", "y", "z") if exact else ()
    for mode in ("auto",) if exact else ("auto", "scan"):
        codec = Codec(CodecConfig(mode=mode, quantise=(f"{key}={step}",), lossless=lossless))
        stream = codec.encode(points)
        decoded, _ = codec.decode(stream)
        original = points[codec.order(points, stream)]
        for axis in "xyz":
            assert np.abs(decoded[axis] - original[axis]).max() <= (0.0 if exact else 0.005001)
        assert np.abs(decoded[key].astype(int) - original[key]).max() <= step / 2
        assert (decoded["intensity"] == original["intensity"]).all()
