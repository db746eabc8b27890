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

// A search that has looked at this many leaves goes on by the nodes' boxes; see kdtree/search.py.
constexpr int kPatience = 6;

struct Tree {
    const float* split;
    const signed char* axis;
    const float* boxes;  // inner x 6: low and high corner
    const int* starts;
    const float* x;
    const float* y;
    const float* z;
    int count;
    int inner;  // number of inner nodes
};

// A tree whose points lie axis by axis (3 x count), in its order.
__device__ inline Tree make_tree(
    const float* split, const signed char* axis, const float* boxes, const int* starts,
    const float* points, int count, int inner)
{
    return {split, axis, boxes, starts, points, points + count, points + 2 * count, count, inner};
}

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

// The query's distances to a node's box along the axes.
__device__ inline Pending at_box(const Tree& tree, int node, float qx, float qy, float qz)
{
    const float* box = tree.boxes + 6 * node;
    return {
        node,
        fmaxf(fmaxf(box[0] - qx, qx - box[3]), 0.0f),
        fmaxf(fmaxf(box[1] - qy, qy - box[4]), 0.0f),
        fmaxf(fmaxf(box[2] - qz, qz - box[5]), 0.0f),
    };
}

// Go down as far as there are boxes, to the nearer one each time; push the others.
__device__ inline Pending narrow(
    const Tree& tree, Pending pending, float qx, float qy, float qz, float limit, Pending* stack,
    int& top)
{
    while (pending.node < tree.inner >> 1 &&
           square_norm(pending.x, pending.y, pending.z) < limit) {
        const Pending left = at_box(tree, 2 * pending.node + 1, qx, qy, qz);
        const Pending right = at_box(tree, 2 * pending.node + 2, qx, qy, qz);
        const float left_square = square_norm(left.x, left.y, left.z);
        const float right_square = square_norm(right.x, right.y, right.z);
        const bool to_left = left_square < right_square;
        if (fmaxf(left_square, right_square) < limit) {
            stack[top++] = to_left ? right : left;
        }
        pending = to_left ? left : right;
    }
    return pending;
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
    for (int leaves = 0; top > 0;) {
        Pending pending = stack[--top];
        if (leaves >= kPatience) {
            pending = narrow(tree, pending, qx, qy, qz, limit, stack, top);
        }
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
        ++leaves;
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
