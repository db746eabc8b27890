// A KD-tree in flat arrays and its traversal; the layout is that of kdtree/tree.py.
//
// Coordinates are float32 relative to the tree's float64 origin, which the host keeps.

#pragma once

// NVRTC has no header with it.
__device__ inline float infinity()
{
    return __int_as_float(0x7f800000);
}

// Deeper than any tree: 2^31 points in leaves of 64 take 25.
constexpr int kStack = 32;
// In place of an axis: all points of the node are the same.
constexpr int kIdentical = 3;

struct Tree {
    const float* split;
    const signed char* axis;
    const int* starts;
    const float* x;
    const float* y;
    const float* z;
    int count;
    int inner;  // number of inner nodes
};

// A side of a split that is still to be visited, and the query's distances to its cell by axis.
struct Pending {
    int node;
    float x, y, z;
};

__device__ inline float square_norm(float x, float y, float z)
{
    return x * x + y * y + z * z;
}

// The first point of an inner node: those of a level share the points evenly.
__device__ inline int first_of(const Tree& tree, int node, int next)
{
    const int depth = 31 - __clz(node + 1);
    const long long place = node + 1 - (1 << depth) + next;
    return static_cast<int>((tree.count * place) >> depth);
}

// Visit leaves in the order of the traversal as long as they may hold points nearer than the
// limit. `visit(start, end, identical)` looks at the points and may lower the limit.
template <typename Visit>
__device__ inline void traverse(
    const Tree& tree, float qx, float qy, float qz, const float& limit, Visit visit)
{
    Pending stack[kStack];
    int top = 1;
    stack[0] = {0, 0.0f, 0.0f, 0.0f};
    while (top > 0) {
        const Pending pending = stack[--top];
        if (square_norm(pending.x, pending.y, pending.z) >= limit) {
            continue;
        }
        int node = pending.node;
        bool identical = false;
        while (node < tree.inner) {
            const int axis = tree.axis[node];
            if (axis == kIdentical) {
                identical = true;
                break;
            }
            const float q = axis == 0 ? qx : axis == 1 ? qy : qz;
            const float side = q - tree.split[node];
            Pending far = {
                0,
                axis == 0 ? side : pending.x,
                axis == 1 ? side : pending.y,
                axis == 2 ? side : pending.z,
            };
            const int near = 2 * node + (side < 0.0f ? 1 : 2);
            if (square_norm(far.x, far.y, far.z) < limit) {
                far.node = 4 * node + 3 - near;
                stack[top++] = far;
            }
            node = near;
        }
        if (identical) {
            visit(first_of(tree, node, 0), first_of(tree, node, 1), true);
        } else {
            visit(tree.starts[node - tree.inner], tree.starts[node - tree.inner + 1], false);
        }
    }
}

// Call `look(square, i)` for the points start to end, with their squared distances from q. Loads are
// issued for several points at a time: one after the other, each would wait for memory.
template <typename Look>
__device__ inline void scan(
    const Tree& tree, int start, int end, float qx, float qy, float qz, Look look)
{
    constexpr int kBatch = 4;
    for (int first = start; first < end; first += kBatch) {
        float squares[kBatch];
#pragma unroll
        for (int n = 0; n < kBatch; ++n) {
            const int i = min(first + n, end - 1);
            squares[n] = square_norm(tree.x[i] - qx, tree.y[i] - qy, tree.z[i] - qz);
        }
#pragma unroll
        for (int n = 0; n < kBatch; ++n) {
            if (first + n < end) {
                look(squares[n], first + n);
            }
        }
    }
}
