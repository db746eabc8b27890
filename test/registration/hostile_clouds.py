"""Clouds on which a search tree may fail or crawl: copies, ties, lines, clusters, far origins."""

import numpy as np


def hostile_clouds(count=600, seed=0):
    """Return name: points (N, 3) of float64, metres, N about ``count``."""
    rng = np.random.default_rng(seed)
    uniform = rng.uniform(-5, 5, (count, 3))
    centres = rng.uniform(-5, 5, (6, 3))
    clusters = centres[rng.integers(6, size=count)] + rng.normal(0, 1e-3, (count, 3))
    line = np.linspace(-5, 5, count)[:, None]
    edge = round(count ** (1 / 3))
    grid = np.stack(np.meshgrid(*3 * [np.arange(edge) * 0.5]), axis=-1).reshape(-1, 3)
    half_zeros = uniform.copy()
    half_zeros[rng.permutation(count)[: count // 2]] = 0.0
    return {
        "uniform": uniform,
        "clusters": clusters,
        "plane": uniform * [1, 1, 0],
        "tilted plane": uniform[:, :2] @ np.array([[1.0, 0.2, -0.3], [0.1, 1.0, 0.4]]),
        "line along x": line * [1.0, 0, 0],
        "tilted line": line * [1.0, 0.5, -0.3],
        "five of each": np.repeat(uniform[: count // 5], 5, axis=0),
        "five of each, apart": np.tile(uniform[: count // 5], (5, 1)),
        "all the same": np.tile([1.0, 2.0, 3.0], (count, 1)),
        "two places": np.array([[1.0, 2.0, 3.0], [1.5, 2.0, 3.0]])[rng.integers(2, size=count)],
        "grid": grid,
        "half zeros": half_zeros,
        "UTM": uniform + [512_700.0, 5_403_548.0, 300.0],
        "wide and dense": np.vstack([clusters[::2], uniform[::2] * 2e5]),
        "sorted": uniform[np.argsort(uniform[:, 0])],
        "sawtooth": uniform * [0, 1, 1] + np.c_[np.arange(count) % 7, 0 * line, 0 * line],
        "one": uniform[:1],
        "two": uniform[:2],
        "three": uniform[:3],
    }
