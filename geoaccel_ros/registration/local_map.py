"""The local map: a voxel hash of Gaussians around the sensor, bounded in extent and memory.

Each voxel holds the count, mean and covariance of the points that fell into it, and what those
around it form: a surface, a line, or neither. The hash is what is searched, too: it grows with the
map, where a tree would be built anew for each scan. Cf. Biber and Strasser, The Normal
Distributions Transform, IROS 2003, and for planar against non-planar voxels Lee et al., GenZ-ICP,
RA-L 2025.
"""

import numpy as np
from numba import njit

from geoaccel_ros.registration.kdtree.tree import KdTree
from geoaccel_ros.registration.voxels import home_slot, pack, table_size, unpack, voxel_key
from geoaccel_ros.threads import Threads

# A mean over more points no longer follows a world that changes, and its error is not the sensor's.
_COUNT_CAP = 100.0
# Fewer points than this in a voxel and its 26 neighbours say nothing about a surface.
_FEWEST_FOR_A_NORMAL = 6.0
# With eigenvalues s0 <= s1 <= s2 of a neighbourhood: flat when s0 is below this part of s1 …
_FLAT = 0.05
# … and wide when s1 is above this part of s2; else it is a line: the smallest eigenvector is noise.
_WIDE = 0.05
# A line that rises by more than this (sine of its slope) stands: a pole, whose mean has a place.
_STANDING = 0.5
# What is neither a plane nor a line that lies but has s1 below this part of s2 is long, as a pole
# is or two rings are: along it a mean lies where points happened to fall.
_ELONGATED = 0.5
# Of the two eigenvalues in the plane, for a lidar that sees a single line of each wall.
_STRAIGHT = 0.1
# What a voxel is: too little to tell, on a surface, on a line that lies, or a thing with a place.
NONE, PLANE, LINE, POINT = np.int8(0), np.int8(1), np.int8(2), np.int8(3)
# Columns of a voxel's row.
_COUNT, _MEAN, _SCATTER = 0, 1, 4
# Up to this many voxels away the hash is searched.
_HASH_RADIUS = 2.0
# Voxels or points that are worth a thread's start.
_SHARE = 512


class LocalMap:
    """Gaussians of points, one a voxel, around a centre that follows the sensor.

    Coordinates are kept relative to a float64 ``origin``, so that positions of UTM size lose
    nothing.

    Parameters
    ----------
    voxel : float
        Edge of the voxels, metres.
    radius : float
        Voxels farther than this from the centre are forgotten, metres.
    capacity : int
        The most voxels ever held. When three quarters are taken, the nearest half of them stays;
        what still does not fit is left out.
    origin : ndarray (3,), metres
        A point of the map's frame near all that will be mapped.
    planar : bool
        Surfaces are upright and normals horizontal, as a lidar of one ring sees them.
    threads : Threads
        Share the search for normals.
    """

    def __init__(
        self,
        voxel: float,
        radius: float,
        capacity: int,
        origin: np.ndarray,
        planar: bool = False,
        threads: Threads | None = None,
    ):
        self.voxel = voxel
        self.radius = radius
        self.origin = np.array(origin, np.float64)
        self.size = 0
        self._capacity = capacity
        self._planar = planar
        self._threads = threads or Threads(1)
        self._keys = np.empty(capacity, np.int64)
        # Count, mean and scatter side by side: what is read together lies together.
        self._gaussians = np.empty((capacity, 10))
        self._normals = np.empty((capacity, 3))
        self._kinds = np.empty(capacity, np.int8)
        # Points in the voxel when its normal was found.
        self._counts_at_normal = np.empty(capacity)
        self._latest = np.zeros(capacity, np.bool_)
        self._table = np.empty(table_size(capacity), np.int32)
        _rehash(self._keys[:0], self._table)
        self._pruned_at = np.zeros(3)
        self._tree: KdTree | None = None

    @property
    def means(self) -> np.ndarray:
        """Means of the voxels, (M, 3) float64, metres, relative to ``origin``; a view."""
        return self._gaussians[: self.size, _MEAN:_SCATTER]

    @property
    def counts(self) -> np.ndarray:
        """Points in each voxel, (M,) float64, capped; a view."""
        return self._gaussians[: self.size, _COUNT]

    @property
    def normals(self) -> np.ndarray:
        """Unit vectors (M, 3): across planes, along lines and poles, or zero; a view."""
        return self._normals[: self.size]

    @property
    def kinds(self) -> np.ndarray:
        """NONE, PLANE, LINE or POINT of each voxel, (M,) of int8; a view."""
        return self._kinds[: self.size]

    @property
    def covariances(self) -> np.ndarray:
        """Covariances of the points in each voxel, (M, 3, 3) float64, square metres."""
        scatters = self._gaussians[: self.size, _SCATTER:]
        xx, xy, xz, yy, yz, zz = (scatters / self.counts[:, None]).T
        return np.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], axis=1).reshape(-1, 3, 3)

    def points(self) -> np.ndarray:
        """Return the means as points (M, 3) float64 of the map's frame, metres; a copy."""
        return self.means + self.origin

    def add(self, points: np.ndarray, centre: np.ndarray) -> None:
        """Add points and forget what is far from ``centre``.

        Parameters
        ----------
        points : ndarray (N, 3) of float64, metres, in the map's frame
        centre : ndarray (3,), metres, in the map's frame
            Where the sensor is.
        """
        points = points - self.origin
        centre = np.asarray(centre, np.float64) - self.origin
        self._make_room(centre)
        touched = np.empty(len(points), np.int64)
        self._tree = None
        self.size, count = _add(
            points,
            1.0 / self.voxel,
            self._keys,
            self._gaussians,
            self._counts_at_normal,
            self._table,
            self.size,
            touched,
            self._latest,
        )
        self._threads.split(
            _update_normals,
            count,
            touched,
            self._keys,
            self._gaussians,
            self._table,
            self._planar,
            self._normals,
            self._kinds,
            self._counts_at_normal,
            block=_SHARE,
        )

    def nearest(self, queries: np.ndarray, radius: float, indices: np.ndarray) -> None:
        """Write the index of each query's nearest mean, -1 where none is as near as ``radius``.

        What ``indices`` holds before is where the search begins: a former match, or -1.

        Near ones are found in the hash. Far ones would take hundreds of looks where there is
        nothing: a tree of the means finds them, built when it is first asked for; that is where a
        prediction was bad.

        Parameters
        ----------
        queries : ndarray (N, 3) of float64, metres, relative to ``origin``
        radius : float, metres
        indices : ndarray (N,) of int64
        """
        if radius > _HASH_RADIUS * self.voxel:
            if self._tree is None:
                self._tree = KdTree(self.means, threads=self._threads)
            indices[:] = self._tree.nearest(queries, radius)[0]
            return
        self._threads.split(
            _nearest_voxels,
            len(queries),
            queries,
            radius,
            self.voxel,
            self._keys,
            self._gaussians,
            self._table,
            indices,
            block=_SHARE,
        )

    def _make_room(self, centre: np.ndarray) -> None:
        # Each forgetting rebuilds the hash table, so it waits until it is worth it.
        moved = np.linalg.norm(centre - self._pruned_at) > 0.1 * self.radius
        full = self.size > 0.75 * self._capacity
        if not (moved or full) or self.size == 0:
            return
        squares = np.sum((self.means - centre) ** 2, axis=1)
        keep = squares <= self.radius**2
        room = self._capacity // 2
        if full and np.count_nonzero(keep) > room:
            keep[:] = False
            keep[np.argpartition(squares, room)[:room]] = True
        kept = np.flatnonzero(keep)
        for array in (
            self._keys,
            self._gaussians,
            self._normals,
            self._kinds,
            self._counts_at_normal,
        ):
            array[: len(kept)] = array[kept]
        self.size = len(kept)
        _rehash(self._keys[: self.size], self._table)
        self._pruned_at = centre


@njit(cache=True, inline="always")
def _find(key, keys, table):
    """Return the slot of ``key`` in the table and its index, -1 where it is absent."""
    mask = len(table) - 1
    slot = home_slot(key, mask)
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot, table[slot]


@njit(cache=True)
def _rehash(keys, table):
    table[:] = -1
    mask = len(table) - 1
    for i in range(len(keys)):
        slot = home_slot(keys[i], mask)
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = i


@njit(nogil=True, cache=True)
def _nearest_voxels(first, last, queries, radius, voxel, keys, gaussians, table, indices):
    for i in range(first, last):
        indices[i] = _nearest_voxel(
            queries[i, 0],
            queries[i, 1],
            queries[i, 2],
            indices[i],
            radius,
            voxel,
            keys,
            gaussians,
            table,
        )


@njit(nogil=True, cache=True, inline="always")
def _nearest_voxel(x, y, z, known, radius, voxel, keys, gaussians, table):
    """Return the voxel whose mean is nearest to a point, -1 where none is as near as ``radius``.

    Shell by shell of voxels around the point's own, each voxel only if the nearest of its own
    volume would be nearer than what was found, or than the ``known`` one.
    """
    inverse = 1.0 / voxel
    # The point and all distances in voxels, relative to the lower corner of its own.
    i, j, k = unpack(voxel_key(x * inverse, y * inverse, z * inverse))
    fx, fy, fz = x * inverse, y * inverse, z * inverse
    fx, fy, fz = fx - np.floor(fx), fy - np.floor(fy), fz - np.floor(fz)
    edge = min(min(min(fx, 1.0 - fx), min(fy, 1.0 - fy)), min(fz, 1.0 - fz))
    best, square = np.int64(-1), radius * radius
    if known >= 0:
        found = _square_to(gaussians[known], x, y, z)
        if found <= square:
            best, square = known, found
    limit = square * inverse * inverse
    shell = 0
    while shell == 0 or (shell - 1 + edge) ** 2 <= limit:
        for a in range(-shell, shell + 1):
            gap_x = _gap(fx, a)
            if gap_x > limit:
                continue
            for b in range(-shell, shell + 1):
                gap_xy = gap_x + _gap(fy, b)
                if gap_xy > limit:
                    continue
                # Inside the shell only its two faces are new.
                step = 1 if abs(a) == shell or abs(b) == shell else 2 * shell
                for c in range(-shell, shell + 1, step):
                    if gap_xy + _gap(fz, c) > limit:
                        continue
                    _, index = _find(pack(i + a, j + b, k + c), keys, table)
                    if index < 0:
                        continue
                    found = _square_to(gaussians[index], x, y, z)
                    if found < square or (best < 0 and found <= square):
                        square, best = found, np.int64(index)
                        limit = found * inverse * inverse
        shell += 1
    return best


@njit(nogil=True, cache=True, inline="always")
def _square_to(row, x, y, z):
    """Return the squared distance of a point to a voxel's mean."""
    return (row[_MEAN] - x) ** 2 + (row[_MEAN + 1] - y) ** 2 + (row[_MEAN + 2] - z) ** 2


@njit(nogil=True, cache=True, inline="always")
def _gap(fraction, step):
    """Return the square of how far a point is along one axis from a voxel ``step`` further on."""
    if step > 0:
        return (step - fraction) ** 2
    if step < 0:
        return (fraction - step - 1.0) ** 2
    return 0.0


@njit(nogil=True, cache=True)
def _add(points, inverse_voxel, keys, gaussians, counts_at_normal, table, size, touched, latest):
    """Accumulate by Welford's update, which loses nothing where the mean is far from zero.

    A point that would need a voxel beyond the capacity is left out. Returns how many voxels there
    are and how many were ``touched``; ``latest`` is all false before and after.
    """
    count_touched = 0
    for p in range(len(points)):
        x, y, z = points[p, 0], points[p, 1], points[p, 2]
        key = voxel_key(x * inverse_voxel, y * inverse_voxel, z * inverse_voxel)
        slot, i = _find(key, keys, table)
        if i < 0:
            if size == len(keys):
                continue
            i = size
            size += 1
            table[slot] = i
            keys[i] = key
            gaussians[i] = 0.0
            counts_at_normal[i] = 0.0
        if not latest[i]:
            latest[i] = True
            touched[count_touched] = i
            count_touched += 1
        row = gaussians[i]
        if row[_COUNT] >= _COUNT_CAP:
            # Exponential forgetting from here on: the oldest point's share leaves.
            shrink = (_COUNT_CAP - 1.0) / row[_COUNT]
            row[_SCATTER:] *= shrink
            row[_COUNT] = _COUNT_CAP - 1.0
        row[_COUNT] += 1.0
        dx, dy, dz = x - row[_MEAN], y - row[_MEAN + 1], z - row[_MEAN + 2]
        row[_MEAN] += dx / row[_COUNT]
        row[_MEAN + 1] += dy / row[_COUNT]
        row[_MEAN + 2] += dz / row[_COUNT]
        ex, ey, ez = x - row[_MEAN], y - row[_MEAN + 1], z - row[_MEAN + 2]
        row[_SCATTER] += dx * ex
        row[_SCATTER + 1] += dx * ey
        row[_SCATTER + 2] += dx * ez
        row[_SCATTER + 3] += dy * ey
        row[_SCATTER + 4] += dy * ez
        row[_SCATTER + 5] += dz * ez
    for position in range(count_touched):
        latest[touched[position]] = False
    return size, count_touched


@njit(nogil=True, cache=True)
def _update_normals(
    first, last, indices, keys, gaussians, table, planar, normals, kinds, counts_at_normal
):
    """Find what lies around each voxel from the Gaussian of its 27 neighbours together.

    Again only where the voxel has grown by a tenth since: what many points found few more do not
    change. A full one has its normal found again each time, for its surroundings may be younger.
    """
    scatter = np.empty(6)
    for position in range(first, last):
        i = indices[position]
        own = gaussians[i, _COUNT]
        if counts_at_normal[i] < own < 1.1 * counts_at_normal[i]:
            continue
        counts_at_normal[i] = own
        ix, iy, iz = unpack(keys[i])
        count = 0.0
        sx, sy, sz = 0.0, 0.0, 0.0
        scatter[:] = 0.0
        # Relative to this voxel's mean: sums of squares of small numbers.
        ox, oy, oz = gaussians[i, _MEAN], gaussians[i, _MEAN + 1], gaussians[i, _MEAN + 2]
        for dx in range(-1, 2):
            for dy in range(-1, 2):
                for dz in range(-1, 2):
                    _, j = _find(pack(ix + dx, iy + dy, iz + dz), keys, table)
                    if j < 0:
                        continue
                    row = gaussians[j]
                    n = row[_COUNT]
                    x, y, z = row[_MEAN] - ox, row[_MEAN + 1] - oy, row[_MEAN + 2] - oz
                    count += n
                    sx += n * x
                    sy += n * y
                    sz += n * z
                    scatter[0] += row[_SCATTER] + n * x * x
                    scatter[1] += row[_SCATTER + 1] + n * x * y
                    scatter[2] += row[_SCATTER + 2] + n * x * z
                    scatter[3] += row[_SCATTER + 3] + n * y * y
                    scatter[4] += row[_SCATTER + 4] + n * y * z
                    scatter[5] += row[_SCATTER + 5] + n * z * z
        normal = normals[i]
        normal[:] = 0.0
        kinds[i] = NONE
        if count < _FEWEST_FOR_A_NORMAL:
            continue
        mx, my, mz = sx / count, sy / count, sz / count
        xx, xy = scatter[0] / count - mx * mx, scatter[1] / count - mx * my
        yy, zz = scatter[3] / count - my * my, scatter[5] / count - mz * mz
        if planar:
            kinds[i] = PLANE if _line_normal(xx, xy, yy, normal) else POINT
            continue
        xz, yz = scatter[2] / count - mx * mz, scatter[4] / count - my * mz
        smallest, middle, largest = smallest_eigenvector(xx, xy, xz, yy, yz, zz, normal)
        if middle > _WIDE * largest:
            kinds[i] = PLANE if smallest < _FLAT * middle else POINT
        else:
            # Of a line, the share of the variance along z is the square of its slope's sine.
            kinds[i] = POINT if zz > _STANDING**2 * (xx + yy + zz) else LINE
        if kinds[i] == POINT and middle > _ELONGATED * largest:
            normal[:] = 0.0
        elif kinds[i] != PLANE:
            # The largest eigenvector of a matrix is the smallest of its negative.
            smallest_eigenvector(-xx, -xy, -xz, -yy, -yz, -zz, normal)


@njit(nogil=True, cache=True, inline="always")
def _line_normal(xx, xy, yy, normal):
    """Fill in the horizontal normal of points that form a line from above; return whether so."""
    mean, half = 0.5 * (xx + yy), 0.5 * (xx - yy)
    root = np.hypot(half, xy)
    if mean - root >= _STRAIGHT * (mean + root):
        return False
    # The line runs at half the angle of (half, xy); across it is a right angle further.
    angle = 0.5 * np.arctan2(xy, half) + 0.5 * np.pi
    normal[0], normal[1] = np.cos(angle), np.sin(angle)
    return True


@njit(nogil=True, cache=True)
def smallest_eigenvector(xx, xy, xz, yy, yz, zz, vector):
    """Return the three eigenvalues, rising, of a symmetric 3 x 3 matrix; fill the first's vector.

    Eigenvalues by the trigonometric solution (Smith 1961). The vector is the longest cross product
    of two rows of A - s0 I: exact where s0 is apart from s1, which is where a normal means
    anything.
    """
    mean = (xx + yy + zz) / 3.0
    off = xy * xy + xz * xz + yz * yz
    spread = (xx - mean) ** 2 + (yy - mean) ** 2 + (zz - mean) ** 2 + 2.0 * off
    vector[0], vector[1], vector[2] = 0.0, 0.0, 1.0
    if spread <= 1e-30:
        return mean, mean, mean
    p = np.sqrt(spread / 6.0)
    a, b, c = (xx - mean) / p, (yy - mean) / p, (zz - mean) / p
    d, e, f = xy / p, xz / p, yz / p
    half_det = 0.5 * (a * (b * c - f * f) - d * (d * c - f * e) + e * (d * f - b * e))
    angle = np.arccos(min(1.0, max(-1.0, half_det))) / 3.0
    largest = mean + 2.0 * p * np.cos(angle)
    smallest = mean + 2.0 * p * np.cos(angle + 2.0 * np.pi / 3.0)
    middle = 3.0 * mean - largest - smallest
    rows = (
        (xx - smallest, xy, xz),
        (xy, yy - smallest, yz),
        (xz, yz, zz - smallest),
    )
    best = 0.0
    for first, second in ((0, 1), (0, 2), (1, 2)):
        u, v = rows[first], rows[second]
        cx = u[1] * v[2] - u[2] * v[1]
        cy = u[2] * v[0] - u[0] * v[2]
        cz = u[0] * v[1] - u[1] * v[0]
        square = cx * cx + cy * cy + cz * cz
        if square > best:
            best = square
            length = np.sqrt(square)
            vector[0], vector[1], vector[2] = cx / length, cy / length, cz / length
    return smallest, middle, largest
