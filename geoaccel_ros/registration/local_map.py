"""The local map: a voxel hash of Gaussians around the sensor, bounded in extent and memory.

Each voxel holds the count, mean and covariance of the points that fell into it, and the normal of
the surface around it. Cf. Biber and Strasser, The Normal Distributions Transform, IROS 2003, and
for planar against non-planar voxels Lee et al., GenZ-ICP, RA-L 2025.
"""

import numpy as np
from numba import njit

from geoaccel_ros.registration.voxels import home_slot, pack, table_size, unpack, voxel_key

# A mean over more points no longer follows a world that changes, and its error is not the sensor's.
_COUNT_CAP = 100.0
# Fewer points than this in a voxel and its 26 neighbours say nothing about a surface.
_FEWEST_FOR_A_NORMAL = 6.0
# With eigenvalues s0 <= s1 <= s2 of a neighbourhood: flat when s0 is below this part of s1 …
_FLAT = 0.1
# … and wide when s1 is above this part of s2. A single ring on the ground is long, not wide: its
# smallest eigenvector is noise, and a normal across the ring would lock the pose onto it.
_WIDE = 0.05


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
    """

    def __init__(self, voxel: float, radius: float, capacity: int, origin: np.ndarray):
        self.voxel = voxel
        self.radius = radius
        self.origin = np.array(origin, np.float64)
        self.size = 0
        self._capacity = capacity
        self._keys = np.empty(capacity, np.int64)
        self._counts = np.empty(capacity)
        self._means = np.empty((capacity, 3))
        self._scatters = np.empty((capacity, 6))
        self._normals = np.empty((capacity, 3))
        self._planar = np.empty(capacity, np.bool_)
        # Points in the voxel when its normal was found.
        self._counts_at_normal = np.empty(capacity)
        self._table = np.empty(table_size(capacity), np.int32)
        _rehash(self._keys[:0], self._table)
        self._pruned_at = np.zeros(3)

    @property
    def means(self) -> np.ndarray:
        """Means of the voxels, (M, 3) float64, metres, relative to ``origin``; a view."""
        return self._means[: self.size]

    @property
    def counts(self) -> np.ndarray:
        """Points in each voxel, (M,) float64, capped; a view."""
        return self._counts[: self.size]

    @property
    def normals(self) -> np.ndarray:
        """Unit normals (M, 3) of the surface around each voxel, zero where not planar; a view."""
        return self._normals[: self.size]

    @property
    def planar(self) -> np.ndarray:
        """Whether the surface around each voxel is a plane, (M,) bool; a view."""
        return self._planar[: self.size]

    @property
    def covariances(self) -> np.ndarray:
        """Covariances of the points in each voxel, (M, 3, 3) float64, square metres."""
        xx, xy, xz, yy, yz, zz = (self._scatters[: self.size] / self.counts[:, None]).T
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
        self.size, count = _add(
            points,
            1.0 / self.voxel,
            self._keys,
            self._counts,
            self._means,
            self._scatters,
            self._counts_at_normal,
            self._table,
            self.size,
            touched,
        )
        _update_normals(
            touched[:count],
            self._keys,
            self._counts,
            self._means,
            self._scatters,
            self._table,
            self._normals,
            self._planar,
            self._counts_at_normal,
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
            self._counts,
            self._means,
            self._scatters,
            self._normals,
            self._planar,
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


@njit(cache=True)
def _add(
    points, inverse_voxel, keys, counts, means, scatters, counts_at_normal, table, size, touched
):
    """Accumulate by Welford's update, which loses nothing where the mean is far from zero.

    A point that would need a voxel beyond the capacity is left out.
    """
    count_touched = 0
    latest = np.zeros(len(keys), np.bool_)
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
            counts[i] = 0.0
            means[i] = 0.0
            scatters[i] = 0.0
            counts_at_normal[i] = 0.0
        if not latest[i]:
            latest[i] = True
            touched[count_touched] = i
            count_touched += 1
        if counts[i] >= _COUNT_CAP:
            # Exponential forgetting from here on: the oldest point's share leaves.
            shrink = (_COUNT_CAP - 1.0) / counts[i]
            scatters[i] *= shrink
            counts[i] = _COUNT_CAP - 1.0
        counts[i] += 1.0
        dx, dy, dz = x - means[i, 0], y - means[i, 1], z - means[i, 2]
        means[i, 0] += dx / counts[i]
        means[i, 1] += dy / counts[i]
        means[i, 2] += dz / counts[i]
        ex, ey, ez = x - means[i, 0], y - means[i, 1], z - means[i, 2]
        scatters[i, 0] += dx * ex
        scatters[i, 1] += dx * ey
        scatters[i, 2] += dx * ez
        scatters[i, 3] += dy * ey
        scatters[i, 4] += dy * ez
        scatters[i, 5] += dz * ez
    return size, count_touched


@njit(cache=True)
def _update_normals(
    indices, keys, counts, means, scatters, table, normals, planar, counts_at_normal
):
    """Find the normal around each voxel from the Gaussian of its 27 neighbours together.

    Again only where the voxel has grown by a tenth since: what many points found few more do not
    change. A full one has its normal found again each time, for its surroundings may be younger.
    """
    scatter = np.empty(6)
    normal = np.empty(3)
    for position in range(len(indices)):
        i = indices[position]
        if counts_at_normal[i] < counts[i] < 1.1 * counts_at_normal[i]:
            continue
        counts_at_normal[i] = counts[i]
        ix, iy, iz = unpack(keys[i])
        count = 0.0
        sx, sy, sz = 0.0, 0.0, 0.0
        scatter[:] = 0.0
        # Relative to this voxel's mean: sums of squares of small numbers.
        ox, oy, oz = means[i, 0], means[i, 1], means[i, 2]
        for dx in range(-1, 2):
            for dy in range(-1, 2):
                for dz in range(-1, 2):
                    _, j = _find(pack(ix + dx, iy + dy, iz + dz), keys, table)
                    if j < 0:
                        continue
                    n = counts[j]
                    x, y, z = means[j, 0] - ox, means[j, 1] - oy, means[j, 2] - oz
                    count += n
                    sx += n * x
                    sy += n * y
                    sz += n * z
                    scatter[0] += scatters[j, 0] + n * x * x
                    scatter[1] += scatters[j, 1] + n * x * y
                    scatter[2] += scatters[j, 2] + n * x * z
                    scatter[3] += scatters[j, 3] + n * y * y
                    scatter[4] += scatters[j, 4] + n * y * z
                    scatter[5] += scatters[j, 5] + n * z * z
        planar[i] = False
        normals[i] = 0.0
        if count < _FEWEST_FOR_A_NORMAL:
            continue
        mx, my, mz = sx / count, sy / count, sz / count
        smallest, middle, largest = smallest_eigenvector(
            scatter[0] / count - mx * mx,
            scatter[1] / count - mx * my,
            scatter[2] / count - mx * mz,
            scatter[3] / count - my * my,
            scatter[4] / count - my * mz,
            scatter[5] / count - mz * mz,
            normal,
        )
        if smallest < _FLAT * middle and middle > _WIDE * largest:
            planar[i] = True
            normals[i] = normal


@njit(cache=True)
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
