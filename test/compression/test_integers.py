"""opencl/integers.cl: a model of integers, counted, emitted and decoded from the same source."""

import dataclasses
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from geoaccel_ros.compression.errors import CodecError
from geoaccel_ros.compression.group_sizes import GroupSizes
from geoaccel_ros.compression.prefix_sums import PrefixSums
from geoaccel_ros.compression.rans import EntropyCoder, flat_prior

SOURCE = Path(__file__).parent / "opencl" / "coded_values.cl"
CONTEXTS = 1 + 2 * 70 + 256 + 1
EDGES = np.array(
    [sign * 2**k + d for k in range(63) for d in (-1, 0, 1) for sign in (1, -1)]
    + [2**63 - 1, -(2**63), -(2**63) + 1],
    np.int64,
)


class Values:
    """Codes columns of values in chunks."""

    def __init__(self, device):
        self.device = device
        self.sums = PrefixSums(device)
        self.coder = EntropyCoder(device)
        self.count, self.emit, self.decode_ = (
            device.build(SOURCE.read_text(), (f"-D{way}",)).code_values
            for way in ("COUNT", "EMIT", "DECODE")
        )

    def encode(self, signeds, unsigneds, bytes_, chunk_size):
        device, count = self.device, len(signeds)
        chunks = -(-count // chunk_size)
        columns = [
            device.upload("signeds", signeds),
            device.upload("unsigneds", unsigneds),
            device.upload("bytes", bytes_),
        ]
        starts = device.buffer("starts", 4 * (chunks + 1))
        device.launch_serial(self.count, chunks, starts, chunks, chunk_size, count, *columns)
        self.sums.exclusive(starts, chunks)
        host_starts = device.download(starts, chunks + 1, "u4")
        events = device.buffer("events", 2 * int(host_starts[-1]))
        device.launch_serial(self.emit, chunks, starts, events, chunks, chunk_size, count, *columns)
        return self.coder.encode(events, host_starts, flat_prior(CONTEXTS))

    def decode(self, section, count, chunk_size):
        device = self.device
        chunks = -(-count // chunk_size)
        stream = self.coder.open(section, chunks, flat_prior(CONTEXTS))
        columns = [
            device.upload("signeds", np.zeros(count, np.int64)),
            device.upload("unsigneds", np.zeros(count, np.uint64)),
            device.upload("bytes", np.zeros(count, np.uint8)),
        ]
        device.launch_serial(
            self.decode_, chunks, *stream.arguments, chunks, chunk_size, count, *columns
        )
        stream.finish()
        return [
            device.download(c, count, t) for c, t in zip(columns, ("i8", "u8", "u1"), strict=True)
        ]


@pytest.fixture(scope="module")
def values(device):
    return Values(device)


def check_round_trip(values, signeds, unsigneds, bytes_, chunk_size):
    section = values.encode(signeds, unsigneds, bytes_, chunk_size)
    decoded = values.decode(section, len(signeds), chunk_size)
    assert np.array_equal(decoded[0], signeds)
    # The model leaves out those beside a value that is not negative.
    assert np.array_equal(decoded[1], np.where(signeds < 0, unsigneds, 0))
    assert np.array_equal(decoded[2], bytes_)
    return section


@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_values_at_every_power_of_two(values, chunk_size):
    bytes_ = np.arange(len(EDGES)) % 256
    check_round_trip(values, EDGES, EDGES.view(np.uint64), bytes_.astype(np.uint8), chunk_size)
    check_round_trip(
        values, np.full_like(EDGES, -1), EDGES.view(np.uint64), bytes_.astype(np.uint8), chunk_size
    )


def test_nothing(values):
    nothing = np.empty(0, np.int64)
    check_round_trip(values, nothing, nothing.view(np.uint64), nothing.astype(np.uint8), 10)


def binary_entropy(p):
    return -(p * np.log2(p) + (1 - p) * np.log2(1 - p))


def geometric_entropy(scale):
    """Return the bits of a Laplacian of this scale, rounded to integers."""
    if scale > 1000:
        return np.log2(2 * np.e * scale)
    k = np.arange(1, int(30 * scale) + 30)
    zero = 1 - np.exp(-0.5 / scale)
    each = 0.5 * np.exp(-(k - 0.5) / scale) * (1 - np.exp(-1 / scale))
    return -zero * np.log2(zero) - 2 * (each * np.log2(each)).sum()


@pytest.mark.parametrize("scale", [0.3, 3, 40, 5000, 1e9])
def test_laplacian_residuals_cost_their_entropy(values, scale):
    rng = np.random.default_rng(int(scale))
    count = 100_000
    residuals = np.rint(rng.laplace(0, scale, count)).astype(np.int64)
    section = check_round_trip(
        values, residuals, np.zeros(count, np.uint64), np.zeros(count, np.uint8), 2048
    )
    # The model codes once more whether the value is negative. Of large values all bits but the
    # first three count as even. A chunk costs 6 bytes, a context 2.
    bits = geometric_entropy(scale) + binary_entropy((residuals < 0).mean())
    assert 8 * len(section) <= 1.007 * count * bits + 8 * (6 * 49 + 2 * 100)


def test_damage_never_leaves_the_buffers(values):
    rng = np.random.default_rng(5)
    signeds = rng.integers(-50, 50, 3000)
    section = values.encode(
        signeds, signeds.astype(np.uint64), (signeds & 255).astype(np.uint8), 500
    )
    noticed = 0
    for _ in range(200):
        damaged = bytearray(section)
        for _flip in range(3):
            damaged[rng.integers(len(section))] ^= 1 << rng.integers(8)
        try:
            values.decode(bytes(damaged), 3000, 500)
        except CodecError:
            noticed += 1
    assert noticed >= 100


@pytest.mark.parametrize("group_size", [32, 64, 128, 256, 512, 1024])
@pytest.mark.parametrize("local_kib", [1, 16, 48])
def test_caps_do_not_change_the_bytes(device, values, group_size, local_kib):
    rng = np.random.default_rng(8)
    columns = rng.integers(-50, 50, 3000), np.arange(3000, dtype=np.uint64), np.zeros(3000, "u1")
    capped = dataclasses.replace(
        device, is_cpu=False, local_bytes=local_kib << 10, max_group_size=group_size
    )
    section = Values(capped).encode(*columns, 100)
    assert section == values.encode(*columns, 100)
    assert np.array_equal(Values(capped).decode(section, 3000, 100)[0], columns[0])


def test_measurements_do_not_change_the_bytes(device, values, tmp_path):
    rng = np.random.default_rng(9)
    columns = rng.integers(-50, 50, 3000), np.arange(3000, dtype=np.uint64), np.zeros(3000, "u1")
    measuring = Values(
        dataclasses.replace(device, is_cpu=False, group_sizes=GroupSizes(tmp_path / "sizes.json"))
    )
    # Each time with the next sizes.
    for _ in range(3):
        section = measuring.encode(*columns, 100)
        assert section == values.encode(*columns, 100)
        assert np.array_equal(measuring.decode(section, 3000, 100)[0], columns[0])


def test_nothing_is_allocated_once_buffers_have_grown(values, monkeypatch):
    made = []
    buffer = cl.Buffer
    monkeypatch.setattr(cl, "Buffer", lambda *a, **k: made.append(a) or buffer(*a, **k))
    rng = np.random.default_rng(6)
    for count in (20_000, 19_000, 20_000, 15_000):
        made.clear()
        signeds = rng.integers(-50, 50, count)
        check_round_trip(values, signeds, signeds.view(np.uint64), np.zeros(count, "u1"), 512)
    assert made == []
