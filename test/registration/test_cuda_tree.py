import numpy as np
import pytest
from hostile_clouds import hostile_clouds

from geoaccel_ros import backend
from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.registration.normals import estimate_normals
from geoaccel_ros.threads import Threads


@pytest.mark.gpu
@pytest.mark.skipif(backend.cuda_problem() is not None, reason="needs an NVIDIA GPU")
class TestCuda:
    """The CPU's tree is the oracle: brute force is that one's."""

    @staticmethod
    def trees(points, **options):
        from geoaccel_ros.registration.cuda.tree import CudaTree

        return KdTree(points, **options), CudaTree(points, **options)

    @pytest.mark.parametrize("name", hostile_clouds())
    @pytest.mark.parametrize("leaf_size", [1, 16, 64])
    @pytest.mark.parametrize("axis", ["spread", "cyclic"])
    def test_answers_as_the_cpu(self, name, leaf_size, axis):
        points = hostile_clouds(6000)[name]
        self.check(points, *self.trees(points, leaf_size=leaf_size, axis=axis))

    @pytest.mark.parametrize("name", ["uniform", "half zeros", "grid", "five of each"])
    def test_answers_as_the_cpu_where_many_blocks_build(self, name):
        points = hostile_clouds(300_000)[name]
        self.check(points, *self.trees(points))

    def test_a_million_points(self):
        points = np.random.default_rng(2).uniform(-100, 100, (1_000_000, 3))
        self.check(points, *self.trees(points))

    @staticmethod
    def check(points, cpu, cuda):
        rng = np.random.default_rng(1)
        picked = points[rng.integers(len(points), size=2000)]
        queries = picked + rng.normal(0, 0.3, picked.shape) * (rng.random((2000, 1)) < 0.8)
        # Both compute in float32, one with fused multiply-add: two steps of the largest coordinate.
        step = 4 * np.spacing(np.float32(np.abs(points - cpu.origin).max() + 1.0))
        for radius in (0.5, np.inf):
            expected, found = cpu.nearest(queries, radius), cuda.nearest(queries, radius)
            sure = np.abs(expected[1] - radius) > step if np.isfinite(radius) else slice(None)
            np.testing.assert_allclose(found[1][sure], expected[1][sure], atol=step)
            np.testing.assert_array_equal(found[0] < 0, ~np.isfinite(found[1]))
        expected, found = cpu.neighbours(queries, 7), cuda.neighbours(queries, 7)
        np.testing.assert_allclose(found[1], expected[1], atol=step)
        matched = found[0] >= 0
        own = np.linalg.norm(queries[:, None] - points[found[0]], axis=2)
        np.testing.assert_allclose(own[matched], found[1][matched], atol=step)
        assert all(len(set(row[row >= 0])) == np.count_nonzero(row >= 0) for row in found[0])
        # The tree itself: every point once, and split as the CPU's.
        order = cuda.order.get()
        np.testing.assert_array_equal(np.sort(order), np.arange(len(points)))
        np.testing.assert_array_equal(cuda.starts.get(), cpu.starts)
        inner = len(cpu.axis)
        if not inner:
            return
        local = cuda.points.get()
        for node in (*range(min(inner, 15)), *rng.integers(inner, size=50)):
            depth = int(node + 1).bit_length() - 1
            first = node + 1 - (1 << depth)
            begin, end = (len(points) * (first + k) >> depth for k in (0, 1))
            middle = len(points) * (2 * first + 1) >> (depth + 1)
            axis = int(cuda.axis[node])
            if axis == 3:
                assert np.all(local[:, begin:end] == local[:, begin : begin + 1])
                continue
            split = float(cuda.split[node])
            assert local[axis, begin:middle].max(initial=-np.inf) <= split
            assert local[axis, middle:end].min() >= split

    def test_the_same_tree_every_time(self):
        points = hostile_clouds(50_000)["grid"]
        first, second = (self.trees(points)[1] for _ in range(2))
        np.testing.assert_array_equal(first.order.get(), second.order.get())

    @pytest.mark.parametrize("name", hostile_clouds())
    def test_normals_as_the_cpus(self, name):
        points = hostile_clouds(6000)[name]
        cpu, cuda = self.trees(points)
        expected, found = np.empty((2, len(points), 3))
        expected[cpu.order] = estimate_normals(cpu, Threads(2)).T
        found[cuda.order.get()] = cuda.normals().get().T
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
        cosines = np.abs(np.sum(expected * found, axis=1))
        if name in ("uniform", "plane", "tilted plane", "UTM", "sorted"):
            # Nearly equal eigenvalues, and ties among neighbours, may be settled otherwise.
            assert np.mean(cosines > 0.999) > 0.99

    def test_empty_sides(self):
        _, cuda = self.trees(np.empty((0, 3)))
        assert cuda.nearest(np.zeros((2, 3)), 1.0)[0].tolist() == [-1, -1]
        assert cuda.neighbours(np.zeros((2, 3)), 2)[0].tolist() == [[-1, -1], [-1, -1]]
        _, cuda = self.trees(np.ones((5, 3)))
        assert cuda.nearest(np.empty((0, 3)), 1.0)[0].shape == (0,)
