"""benchmark/compression_neighbours.py: bits by what a field is predicted from."""

import numpy as np

from geoaccel_ros.benchmark.compression_neighbours import memories, predictions
from geoaccel_ros.compression.device import Device


def test_neighbours_save_bits_where_a_node_is_mixed():
    """Two surfaces a few cells apart, of different values: a node's mean is of both."""
    rng = np.random.default_rng(1)
    count = 8192
    side = rng.integers(0, 2, count)
    cells = np.stack([np.arange(count) // 4, 4 * side, rng.integers(0, 2, count)])
    values = 100 * side + rng.integers(0, 4, count)
    device = Device.open()
    bits = {
        row["prediction"]: row["bits_per_point"]
        for row in predictions(device, cells, values, 1).rows
    }
    adaptive = [f"parent + {k} neighbours, adaptive" for k in (3, 6)]
    fixed = [f"parent + {k} neighbours, fixed" for k in (3, 6)]
    assert set(bits) == {"parent", *adaptive, *fixed}
    # A mean of both sides is 50 off, whatever else it is mixed with.
    assert all(bits[name] < bits["parent"] - 1 for name in adaptive)
    assert all(bits[name] > bits[adaptive[0]] for name in fixed)


def test_both_memories_are_timed():
    rows = memories(Device.open(), np.arange(300).reshape(3, 100), 1).rows
    assert [row["positions in"] for row in rows] == ["local memory", "global memory"]
