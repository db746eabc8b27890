// Queries of a KD-tree: the nearest point, the k nearest, normals. One thread a query.

#include "kdtree.cuh"
#include "linear_algebra.cuh"

extern "C" __global__ void __launch_bounds__(128) nearest(
    const float* __restrict__ split,
    const signed char* __restrict__ axis,
    const float* __restrict__ boxes,
    const int* __restrict__ starts,
    const float* __restrict__ points,   // 3 x count, in the tree's order
    int count,
    int inner,
    const float* __restrict__ queries,  // 3 x query_count
    int query_count,
    float limit,                        // squared; nearer points count
    int* __restrict__ matches,          // places in the tree's order, -1 for none
    float* __restrict__ squares)        // infinity for none
{
    const int query = blockIdx.x * blockDim.x + threadIdx.x;
    if (query >= query_count) {
        return;
    }
    const Tree tree = make_tree(split, axis, boxes, starts, points, count, inner);
    const float qx = queries[query];
    const float qy = queries[query_count + query];
    const float qz = queries[2 * query_count + query];
    float best = limit;
    int match = -1;
    traverse(tree, qx, qy, qz, best, [&](int start, int end, bool identical) {
        scan(tree, start, identical ? start + 1 : end, qx, qy, qz, [&](float square, int i) {
            if (square < best) {
                best = square;
                match = i;
            }
        });
    });
    matches[query] = match;
    squares[query] = match < 0 ? infinity() : best;
}

// The k nearest of each query, nearest first; the rest is -1 and infinity.
__device__ inline void find_neighbours(
    const Tree& tree, float qx, float qy, float qz, int k, int stride, int* matches, float* squares)
{
    for (int i = 0; i < k; ++i) {
        matches[i * stride] = -1;
        squares[i * stride] = infinity();
    }
    float limit = infinity();
    traverse(tree, qx, qy, qz, limit, [&](int start, int end, bool identical) {
        const int last = identical ? min(end, start + k) : end;
        scan(tree, start, last, qx, qy, qz, [&](float square, int i) {
            if (square < limit) {
                int place = k - 1;
                while (place > 0 && squares[(place - 1) * stride] > square) {
                    squares[place * stride] = squares[(place - 1) * stride];
                    matches[place * stride] = matches[(place - 1) * stride];
                    --place;
                }
                squares[place * stride] = square;
                matches[place * stride] = i;
                limit = squares[(k - 1) * stride];
            }
        });
    });
}

extern "C" __global__ void __launch_bounds__(128) neighbours(
    const float* __restrict__ split,
    const signed char* __restrict__ axis,
    const float* __restrict__ boxes,
    const int* __restrict__ starts,
    const float* __restrict__ points,
    int count,
    int inner,
    const float* __restrict__ queries,
    int query_count,
    int k,
    int* __restrict__ matches,   // k x query_count
    float* __restrict__ squares)
{
    const int query = blockIdx.x * blockDim.x + threadIdx.x;
    if (query >= query_count) {
        return;
    }
    const Tree tree = make_tree(split, axis, boxes, starts, points, count, inner);
    find_neighbours(
        tree,
        queries[query],
        queries[query_count + query],
        queries[2 * query_count + query],
        k,
        query_count,
        matches + query,
        squares + query);
}

// Write the covariance, times their number, of the neighbours of the point x y z.
__device__ inline void covariance(
    const Tree& tree, float x, float y, float z, int k, int stride, const int* matches,
    double (&matrix)[3][3])
{
    double mean[3] = {};
    for (int a = 0; a < 3; ++a) {
        for (int b = 0; b < 3; ++b) {
            matrix[a][b] = 0.0;
        }
    }
    for (int n = 0; n < k; ++n) {
        const int match = matches[n * stride];
        // From the point itself: small numbers, so that squares lose nothing.
        const double offset[3] = {
            static_cast<double>(tree.x[match] - x),
            static_cast<double>(tree.y[match] - y),
            static_cast<double>(tree.z[match] - z)};
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            mean[a] += offset[a];
#pragma unroll
            for (int b = 0; b < 3; ++b) {
                matrix[a][b] += offset[a] * offset[b];
            }
        }
    }
#pragma unroll
    for (int a = 0; a < 3; ++a) {
#pragma unroll
        for (int b = 0; b < 3; ++b) {
            matrix[a][b] -= mean[a] * mean[b] / k;
        }
    }
}

// Unit normals of the tree's own points, as normals.py finds them.
extern "C" __global__ void __launch_bounds__(128) normals(
    const float* __restrict__ split,
    const signed char* __restrict__ axis,
    const float* __restrict__ boxes,
    const int* __restrict__ starts,
    const float* __restrict__ points,
    int count,
    int inner,
    int fewest,                   // neighbours at first; doubled while they lie on a line
    int most,
    double line,
    int* __restrict__ matches,    // most x threads, scratch
    float* __restrict__ squares,  // most x threads, scratch
    float* __restrict__ normals)  // 3 x count
{
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int threads = gridDim.x * blockDim.x;
    const Tree tree = make_tree(split, axis, boxes, starts, points, count, inner);
    for (int i = thread; i < count; i += threads) {
        const float x = tree.x[i], y = tree.y[i], z = tree.z[i];
        for (int wanted = fewest; wanted <= most; wanted *= 2) {
            const int k = min(wanted, count);
            double matrix[3][3], vectors[3][3];
            find_neighbours(tree, x, y, z, k, threads, matches + thread, squares + thread);
            covariance(tree, x, y, z, k, threads, matches + thread, matrix);
            diagonalise(matrix, vectors);
            const double a = matrix[0][0], b = matrix[1][1], c = matrix[2][2];
            const int smallest = a <= b && a <= c ? 0 : b <= c ? 1 : 2;
            for (int r = 0; r < 3; ++r) {
                normals[r * count + i] = static_cast<float>(
                    smallest == 0 ? vectors[r][0] : smallest == 1 ? vectors[r][1] : vectors[r][2]);
            }
            const double largest = fmax(fmax(a, b), c);
            const double middle = fmax(fmin(a, b), fmin(fmax(a, b), c));
            if (middle >= line * largest || k == count) {
                break;
            }
        }
    }
}
