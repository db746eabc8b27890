"""Queries of a KD-tree, compiled: the nearest point, the k nearest, how many are near."""

from typing import NamedTuple

import numpy as np
from numba import njit

from geoaccel_ros.registration.kdtree.build import IDENTICAL

# A search that has looked at this many leaves, and one more for each neighbour it wants, goes on by
# the nodes' boxes. Among points that fill space most searches end before; off a surface, a line or
# a dense cluster cells bound next to nothing, and it would go on for hundreds of leaves.
PATIENCE = 6


class Nodes(NamedTuple):
    """A tree as the compiled functions take it; see :class:`.tree.KdTree` for the layout."""

    split: np.ndarray
    axis: np.ndarray
    boxes: np.ndarray
    starts: np.ndarray
    x: np.ndarray
    y: np.ndarray
    z: np.ndarray


@njit(nogil=True, cache=True, inline="always")
def descend(nodes, node, far_x, far_y, far_z, qx, qy, qz, limit, stack, offsets, top):
    """Go down to the leaf on the query's side; push the other sides that lie within the limit.

    ``far_x`` to ``far_z`` are the query's distances to the node's cell along the axes: their sum of
    squares bounds the distance to all its points (Arya and Mount, DCC 1993).

    Returns
    -------
    The first and the last point (not included) to look at, whether they are all the same point, and
    the new height of the stack.
    """
    inner = len(nodes.split)
    while node < inner:
        axis = nodes.axis[node]
        if axis == IDENTICAL:
            depth = 0
            while (node + 1) >> (depth + 1) > 0:
                depth += 1
            start = (len(nodes.x) * (node + 1 - (1 << depth))) >> depth
            end = (len(nodes.x) * (node + 2 - (1 << depth))) >> depth
            return start, end, True, top
        other_x, other_y, other_z = far_x, far_y, far_z
        if axis == 0:
            side = qx - nodes.split[node]
            other_x = side
        elif axis == 1:
            side = qy - nodes.split[node]
            other_y = side
        else:
            side = qz - nodes.split[node]
            other_z = side
        near = 2 * node + (1 if side < 0.0 else 2)
        if other_x * other_x + other_y * other_y + other_z * other_z < limit:
            stack[top] = 4 * node + 3 - near
            offsets[top, 0], offsets[top, 1], offsets[top, 2] = other_x, other_y, other_z
            top += 1
        node = near
    leaf = node - inner
    return nodes.starts[leaf], nodes.starts[leaf + 1], False, top


@njit(nogil=True, cache=True, inline="always")
def narrow(nodes, node, far_x, far_y, far_z, qx, qy, qz, limit, stack, offsets, top):
    """Go down as far as there are boxes, to the nearer one each time; push the others as above.

    Returns
    -------
    The node, the query's distances to its box along the axes, and the new height of the stack.
    """
    while node < len(nodes.axis) >> 1 and far_x * far_x + far_y * far_y + far_z * far_z < limit:
        left, right = 2 * node + 1, 2 * node + 2
        left_x, left_y, left_z = _box_offsets(nodes.boxes, left, qx, qy, qz)
        right_x, right_y, right_z = _box_offsets(nodes.boxes, right, qx, qy, qz)
        left_square = left_x * left_x + left_y * left_y + left_z * left_z
        right_square = right_x * right_x + right_y * right_y + right_z * right_z
        if left_square < right_square:
            node, far_x, far_y, far_z = left, left_x, left_y, left_z
            if right_square < limit:
                stack[top] = right
                offsets[top, 0], offsets[top, 1], offsets[top, 2] = right_x, right_y, right_z
                top += 1
        else:
            node, far_x, far_y, far_z = right, right_x, right_y, right_z
            if left_square < limit:
                stack[top] = left
                offsets[top, 0], offsets[top, 1], offsets[top, 2] = left_x, left_y, left_z
                top += 1
    return node, far_x, far_y, far_z, top


@njit(nogil=True, cache=True, inline="always")
def _box_offsets(boxes, node, qx, qy, qz):
    """Return the query's distances to a node's bounding box along the axes."""
    inside = np.float32(0.0)
    return (
        max(boxes[node, 0] - qx, qx - boxes[node, 3], inside),
        max(boxes[node, 1] - qy, qy - boxes[node, 4], inside),
        max(boxes[node, 2] - qz, qz - boxes[node, 5], inside),
    )


@njit(nogil=True, cache=True)
def nearest(first, last, qx, qy, qz, nodes, limit, matches, squares):
    """Find the nearest point of each query; -1 and infinity where none is nearer than the limit.

    ``limit`` is a squared distance; ``matches`` are places in the tree's order.
    """
    stack = np.empty(height(nodes), np.int64)
    offsets = np.empty((height(nodes), 3), np.float32)
    for query in range(first, last):
        x, y, z = qx[query], qy[query], qz[query]
        best, match = limit, -1
        stack[0], top = 0, 1
        offsets[0, :] = 0.0
        leaves = 0
        while top > 0:
            top -= 1
            node, fx, fy, fz = stack[top], offsets[top, 0], offsets[top, 1], offsets[top, 2]
            if leaves >= PATIENCE:
                node, fx, fy, fz, top = narrow(
                    nodes, node, fx, fy, fz, x, y, z, best, stack, offsets, top
                )
            if fx * fx + fy * fy + fz * fz >= best:
                continue
            start, end, identical, top = descend(
                nodes, node, fx, fy, fz, x, y, z, best, stack, offsets, top
            )
            leaves += 1
            if identical:
                end = start + 1
            for i in range(start, end):
                dx, dy, dz = nodes.x[i] - x, nodes.y[i] - y, nodes.z[i] - z
                square = dx * dx + dy * dy + dz * dz
                if square < best:
                    best, match = square, i
        matches[query] = match
        squares[query] = best if match >= 0 else np.inf


@njit(nogil=True, cache=True)
def neighbours(first, last, qx, qy, qz, nodes, matches, squares):
    """Find the k nearest points of each query, nearest first; k is the number of columns.

    Where there are fewer points the rest is -1 and infinity.
    """
    stack = np.empty(height(nodes), np.int64)
    offsets = np.empty((height(nodes), 3), np.float32)
    count = matches.shape[1]
    patience = PATIENCE + count
    for query in range(first, last):
        x, y, z = qx[query], qy[query], qz[query]
        found, distances = matches[query], squares[query]
        found[:] = -1
        distances[:] = np.inf
        stack[0], top = 0, 1
        offsets[0, :] = 0.0
        leaves = 0
        while top > 0:
            top -= 1
            limit = distances[count - 1]
            node, fx, fy, fz = stack[top], offsets[top, 0], offsets[top, 1], offsets[top, 2]
            if leaves >= patience:
                node, fx, fy, fz, top = narrow(
                    nodes, node, fx, fy, fz, x, y, z, limit, stack, offsets, top
                )
            if fx * fx + fy * fy + fz * fz >= limit:
                continue
            start, end, identical, top = descend(
                nodes, node, fx, fy, fz, x, y, z, limit, stack, offsets, top
            )
            leaves += 1
            if identical:
                end = min(end, start + count)
            for i in range(start, end):
                dx, dy, dz = nodes.x[i] - x, nodes.y[i] - y, nodes.z[i] - z
                square = dx * dx + dy * dy + dz * dz
                if square < distances[count - 1]:
                    place = count - 1
                    while place > 0 and distances[place - 1] > square:
                        distances[place] = distances[place - 1]
                        found[place] = found[place - 1]
                        place -= 1
                    distances[place] = square
                    found[place] = i


@njit(nogil=True, cache=True)
def count_within(first, last, qx, qy, qz, nodes, limit, most, counts):
    """Count the points of each query nearer than the limit, a squared distance, up to ``most``."""
    stack = np.empty(height(nodes), np.int64)
    offsets = np.empty((height(nodes), 3), np.float32)
    for query in range(first, last):
        x, y, z = qx[query], qy[query], qz[query]
        count = 0
        stack[0], top = 0, 1
        offsets[0, :] = 0.0
        leaves = 0
        while top > 0 and count < most:
            top -= 1
            node, fx, fy, fz = stack[top], offsets[top, 0], offsets[top, 1], offsets[top, 2]
            if leaves >= PATIENCE:
                node, fx, fy, fz, top = narrow(
                    nodes, node, fx, fy, fz, x, y, z, limit, stack, offsets, top
                )
            if fx * fx + fy * fy + fz * fz >= limit:
                continue
            start, end, identical, top = descend(
                nodes, node, fx, fy, fz, x, y, z, limit, stack, offsets, top
            )
            leaves += 1
            copies = 1
            if identical:
                copies, end = end - start, start + 1
            for i in range(start, end):
                dx, dy, dz = nodes.x[i] - x, nodes.y[i] - y, nodes.z[i] - z
                if dx * dx + dy * dy + dz * dz < limit:
                    count += copies
        counts[query] = min(count, most)


@njit(nogil=True, cache=True, inline="always")
def height(nodes):
    """Return how many entries a traversal's stack may need: one a level, and the root's."""
    depth = 0
    while len(nodes.starts) - 1 > 1 << depth:
        depth += 1
    return depth + 1
