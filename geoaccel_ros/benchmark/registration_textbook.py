"""Registration by the textbook: match, solve by SVD, repeat, over three ways to search.

Each search is made of a target (N, 3) and then answers, for queries (M, 3), the indices of their
nearest points and the distances.
"""

import functools
from collections.abc import Callable
from importlib import resources

import numpy as np
from numba import njit
from scipy.spatial import cKDTree

from geoaccel_ros.benchmark.registration_problem import MAX_DISTANCE
from geoaccel_ros.registration import se3
from geoaccel_ros.registration.solve import rigid_fit
from geoaccel_ros.registration.synthetic import SyntheticPair
from geoaccel_ros.threads import Threads

Search = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# Queries that the CPU compares with a target side by side: two registers of eight.
_ABREAST = 16
_BLOCK = 128


def textbook_icp(problem: SyntheticPair, search: Search, iterations: int) -> np.ndarray:
    """Return T_target_source after so many rounds of matching and solving by SVD."""
    T_target_source = np.eye(4)
    for _ in range(iterations):
        indices, distances = search(se3.apply(T_target_source, problem.source))
        near = distances <= MAX_DISTANCE
        T_target_source = rigid_fit(problem.source[near], problem.target[indices[near]])
    return T_target_source


def scipy_search(target: np.ndarray, threads: int) -> Search:
    """Return a search by SciPy's KD-tree."""
    tree = cKDTree(target)

    def search(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        distances, indices = tree.query(queries, workers=threads)
        return indices, distances

    return search


def brute_force_search(target: np.ndarray, threads: int) -> Search:
    """Return a search that compares each query with each point, in float32."""
    columns = np.ascontiguousarray(target.T, np.float32)
    crew = Threads(threads)

    def search(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        matches = np.empty(len(queries), np.int32)
        squares = np.empty(len(queries), np.float32)
        crew.split(
            _nearest,
            len(queries),
            np.ascontiguousarray(queries.T, np.float32),
            columns,
            matches,
            squares,
            block=_ABREAST,
        )
        return matches, np.sqrt(squares)

    return search


def cuda_brute_force_search(target: np.ndarray) -> Search:
    """Return the same on an NVIDIA GPU; queries are copied there, and the matches back."""
    import cupy

    kernel = _cuda_kernel()
    columns = cupy.asarray(target.T, np.float32, order="C")

    def search(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = len(queries)
        matches, squares = cupy.empty(count, np.int32), cupy.empty(count, np.float32)
        kernel(
            (-(-count // _BLOCK),),
            (_BLOCK,),
            (
                cupy.asarray(np.ascontiguousarray(queries.T, np.float32)),
                np.int32(count),
                columns,
                np.int32(len(target)),
                matches,
                squares,
            ),
        )
        return matches.get(), np.sqrt(squares.get())

    return search


@functools.cache
def _cuda_kernel():
    import cupy

    code = resources.files(__package__).joinpath("brute_force.cu").read_text()
    return cupy.RawModule(code=code, options=("--std=c++17",)).get_function("nearest")


@njit(nogil=True, cache=True)
def _nearest(first, last, queries, target, matches, squares):
    x, y, z = target[0], target[1], target[2]
    best, match = np.empty(_ABREAST, np.float32), np.empty(_ABREAST, np.int32)
    qx, qy, qz = np.empty((3, _ABREAST), np.float32)
    for start in range(first, last, _ABREAST):
        count = min(_ABREAST, last - start)
        for k in range(_ABREAST):
            source = start + min(k, count - 1)
            qx[k], qy[k], qz[k] = queries[0, source], queries[1, source], queries[2, source]
        best[:], match[:] = np.inf, 0
        for i in range(len(x)):
            for k in range(_ABREAST):
                dx, dy, dz = x[i] - qx[k], y[i] - qy[k], z[i] - qz[k]
                square = dx * dx + dy * dy + dz * dz
                nearer = square < best[k]
                best[k] = square if nearer else best[k]
                match[k] = np.int32(i) if nearer else match[k]
        for k in range(count):
            matches[start + k], squares[start + k] = match[k], best[k]
