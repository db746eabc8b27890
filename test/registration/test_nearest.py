import numpy as np
import pytest

from geoaccel_ros import backend
from geoaccel_ros.backend import BackendError
from geoaccel_ros.registration.nearest import KdTreeSearch, make_search


def _brute_force(target, queries, max_distance):
    distances = np.linalg.norm(queries[:, None] - target[None], axis=2)
    indices = distances.argmin(axis=1)
    nearest = distances[np.arange(len(queries)), indices]
    near = nearest <= max_distance
    return np.where(near, indices, -1), np.where(near, nearest, np.inf)


def _clouds():
    rng = np.random.default_rng(0)
    return {
        "uniform": rng.uniform(-5, 5, (1500, 3)),
        "plane": rng.uniform(-5, 5, (1500, 3)) * [1, 1, 0],
        "line": rng.uniform(-5, 5, (1500, 3)) * [1, 0, 0],
        "one": np.array([[1.0, 2.0, 3.0]]),
        "UTM": rng.uniform(-5, 5, (500, 3)) + [512_700.0, 5_403_548.0, 300.0],
    }


@pytest.mark.parametrize("name", _clouds())
@pytest.mark.parametrize("threads", [1, 2])
def test_tree_equals_brute_force(name, threads):
    target = _clouds()[name]
    queries = target[: len(target) // 2 + 1] + np.random.default_rng(1).normal(0, 0.3, 3)
    search = KdTreeSearch(threads)
    search.set_target(target)
    indices, distances = search.nearest(queries, 0.6)
    expected_indices, expected_distances = _brute_force(target, queries, 0.6)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_allclose(distances, expected_distances, atol=1e-8)


def test_cuda_without_a_device_is_refused_and_auto_says_why(monkeypatch):
    monkeypatch.setattr(backend.choose_backend, "__defaults__", (lambda: "no device",))
    with pytest.raises(BackendError, match="no device.*backend: cpu"):
        make_search("cuda")
    assert make_search("auto")[1:] == ("cpu", "no device")
    assert make_search("cpu")[1] == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(backend.cuda_problem() is not None, reason="needs an NVIDIA GPU")
class TestCuda:
    @pytest.mark.parametrize("name", _clouds())
    def test_equals_brute_force(self, name):
        target = _clouds()[name]
        queries = target[: len(target) // 2 + 1] + np.random.default_rng(1).normal(0, 0.3, 3)
        search, taken, _ = make_search("cuda")
        assert taken == "cuda"
        search.set_target(target)
        indices, distances = search.nearest(queries, 0.6)
        _, expected = _brute_force(target, queries, 0.6)
        # float32 within 5 m of the origin: steps of 5e-7 m.
        np.testing.assert_allclose(distances, expected, atol=2e-6)
        matched = indices >= 0
        assert np.array_equal(matched, np.isfinite(expected))
        own = np.linalg.norm(queries[matched] - target[indices[matched]], axis=1)
        np.testing.assert_allclose(own, expected[matched], atol=2e-6)

    def test_empty_sides(self):
        search, _, _ = make_search("cuda")
        assert len(search.nearest(np.empty((0, 3)), 1.0)[0]) == 0
        search.set_target(np.empty((0, 3)))
        assert search.nearest(np.zeros((2, 3)), 1.0)[0].tolist() == [-1, -1]

    def test_buffers_grow_with_the_queries(self):
        search, _, _ = make_search("cuda")
        target = np.random.default_rng(2).uniform(-5, 5, (700, 3))
        search.set_target(target)
        for count in (10, 700, 3):
            assert search.nearest(target[:count], 0.1)[0].tolist() == list(range(count))
