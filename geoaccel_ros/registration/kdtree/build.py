"""Building a KD-tree by in-place selection: no recursion, nothing allocated on the way."""

import numpy as np
from numba import njit

# In place of an axis: all points of this node are the same point.
IDENTICAL = 3

# Rules for the axis of a split.
SPREAD, CYCLIC = 0, 1


@njit(nogil=True, cache=True)
def build_levels(keys, pairs, root, first_depth, last_depth, rule, split, axis, boxes):
    """Split the nodes below ``root`` from one depth up to, not including, another.

    Parameters
    ----------
    keys : ndarray (N, 4) of float32
        x, y, z of each point, metres; the fourth column's bits are its index. Reordered.
    pairs : ndarray (N, 2) of int64
        The same memory: what is swapped.
    root : int
        Node at ``first_depth``; see :mod:`geoaccel_ros.registration.kdtree.tree` for numbers.
    rule : int
        SPREAD or CYCLIC.
    split, axis : ndarray (nodes,) of float32, of int8
    boxes : ndarray (nodes, 6) of float32
        Written, all three.
    """
    count = len(keys)
    sample = np.empty(63, np.float32)
    for depth in range(first_depth, last_depth):
        below = depth - first_depth
        first = ((root + 1) << below) - 1
        for node in range(first, first + (1 << below)):
            position = node + 1 - (1 << depth)
            start = (count * position) >> depth
            end = (count * (position + 1)) >> depth
            widest, extent = _bound(keys, start, end, boxes[node])
            if not extent > 0.0:
                axis[node] = IDENTICAL
                split[node] = keys[start, 0]
                continue
            turn = depth % 3
            # A split across an axis on which nothing spreads would part nothing.
            spreads = boxes[node, 3 + turn] > boxes[node, turn]
            chosen = turn if rule == CYCLIC and spreads else widest
            middle = (count * (2 * position + 1)) >> (depth + 1)
            _select(keys, pairs, start, end, middle, chosen, sample)
            axis[node] = chosen
            split[node] = keys[middle, chosen]


@njit(nogil=True, cache=True)
def _bound(keys, start, end, box):
    """Write the bounding box of points start to end; return its longest axis and that's length."""
    x0 = y0 = z0 = np.float32(np.inf)
    x1 = y1 = z1 = np.float32(-np.inf)
    for i in range(start, end):
        x, y, z = keys[i, 0], keys[i, 1], keys[i, 2]
        x0, x1 = min(x0, x), max(x1, x)
        y0, y1 = min(y0, y), max(y1, y)
        z0, z1 = min(z0, z), max(z1, z)
    box[0], box[1], box[2] = x0, y0, z0
    box[3], box[4], box[5] = x1, y1, z1
    widest, extent = 0, x1 - x0
    if y1 - y0 > extent:
        widest, extent = 1, y1 - y0
    if z1 - z0 > extent:
        widest, extent = 2, z1 - z0
    return widest, extent


@njit(nogil=True, cache=True)
def _select(keys, pairs, start, end, wanted, axis, sample):
    """Reorder points start to end so that none before ``wanted`` is greater, none after smaller.

    Quickselect with pivots from a sample; the partition has no branch to mispredict, which halves
    the time against Floyd and Rivest's two scans towards each other.
    """
    while end - start > 1:
        pivot = _pivot(keys, start, end, wanted, axis, sample)
        smaller = _partition(keys, pairs, start, end, axis, pivot, False)
        if wanted < smaller:
            end = smaller
        elif (smaller - start) * 8 >= end - start:
            start = smaller
        else:
            # Little was smaller, so much may be equal: take that off too, or points that are all
            # alike would cost quadratic time.
            greater = _partition(keys, pairs, smaller, end, axis, pivot, True)
            if wanted < greater:
                return
            start = greater


@njit(nogil=True, cache=True, inline="always")
def _partition(keys, pairs, start, end, axis, pivot, with_equal):
    """Move the points below the pivot (or equal to it) to the front; return where they end."""
    write = start
    for i in range(start, end):
        key = keys[i, axis]
        low = (key < pivot) | (with_equal & (key == pivot))
        first, second = pairs[i, 0], pairs[i, 1]
        pairs[i, 0], pairs[i, 1] = pairs[write, 0], pairs[write, 1]
        pairs[write, 0], pairs[write, 1] = first, second
        write += low
    return write


@njit(nogil=True, cache=True)
def _pivot(keys, start, end, wanted, axis, sample):
    """Return the key that takes the place of ``wanted`` in a sorted sample."""
    count = end - start
    size = 5 if count < 100 else (15 if count < 2000 else 63)
    for i in range(size):
        # Evenly over the range, in integers: the same on every machine.
        key = keys[start + ((2 * i + 1) * count) // (2 * size), axis]
        j = i
        while j > 0 and sample[j - 1] > key:
            sample[j] = sample[j - 1]
            j -= 1
        sample[j] = key
    return sample[((wanted - start) * size) // count]
