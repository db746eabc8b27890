// Building a KD-tree on the device, in the layout of kdtree/tree.py: level by level, a node at place j
// of depth d holds the points from N j / 2^d to N (j + 1) / 2^d.
//
// While nodes are large, `split_level` halves each by one block or, near the root, by a team of blocks:
// radix selection of the median, then a stable partition. As soon as nodes fit shared memory,
// `split_subtrees` does the rest by sorting.
// Points with equal coordinates are told apart by their index, so the tree is the same every time.

#include "kdtree.cuh"

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
// Selection looks at this many bits a pass.
constexpr int kDigit = 11;
constexpr int kBins = 1 << kDigit;
// The most blocks that share a node.
constexpr int kLargestTeam = 128;
// The most points of a subtree that one block sorts.
// Its inner nodes are at most as many: leaves may hold a single point.
constexpr int kSubtree = 2048;

using Key = unsigned long long;

// Floats as unsigned integers of the same order.
__device__ inline unsigned ordered(float value)
{
    const unsigned bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float from_ordered(unsigned bits)
{
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

__device__ inline int begin_of(int count, int depth, int position)
{
    return static_cast<int>((static_cast<long long>(count) * position) >> depth);
}

__device__ inline float warp_min(float value)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fminf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
}

__device__ inline int warp_inclusive_sum(int value)
{
    const int lane = threadIdx.x % 32;
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, value, offset);
        value += lane >= offset ? other : 0;
    }
    return value;
}

// The sum of `value` over the threads before this one; `total` over all. Ends with a barrier.
__device__ inline int exclusive_sum(int value, int& total)
{
    __shared__ int sums[kWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int inclusive = warp_inclusive_sum(value);
    if (lane == 31) {
        sums[warp] = inclusive;
    }
    __syncthreads();
    if (warp == 0) {
        sums[lane] = warp_inclusive_sum(sums[lane]);
    }
    __syncthreads();
    const int before = warp == 0 ? 0 : sums[warp - 1];
    total = sums[kWarps - 1];
    __syncthreads();
    return before + inclusive - value;
}

// The axis on which extents [low, high] spread most, kIdentical where on none.
__device__ inline int choose_axis(const float (&low)[3], const float (&high)[3], int depth, int cyclic)
{
    int widest = 0;
    float extent = high[0] - low[0];
    for (int axis = 1; axis < 3; ++axis) {
        if (high[axis] - low[axis] > extent) {
            widest = axis;
            extent = high[axis] - low[axis];
        }
    }
    if (!(extent > 0.0f)) {
        return kIdentical;
    }
    // A split across an axis on which nothing spreads would part nothing.
    const int turn = depth % 3;
    return cyclic && high[turn] > low[turn] ? turn : widest;
}

// What the blocks of a team share in global memory, zeroed before the launch.
struct Team {
    unsigned arrived;
    unsigned low[3], high[3];  // extents: low as the complement, so that zero is the neutral element
    int lefts[kLargestTeam];
    int bins[3][kBins];
};

// Wait for the team; `epoch` counts a block's waits. All its blocks run at once: it is a cooperative
// launch.
__device__ inline void wait_for_team(Team* team, int size, unsigned& epoch)
{
    ++epoch;
    __threadfence();
    __syncthreads();
    if (size > 1) {
        if (threadIdx.x == 0) {
            atomicAdd(&team->arrived, 1u);
            while (*static_cast<volatile unsigned*>(&team->arrived) < epoch * size) {
            }
            __threadfence();
        }
        __syncthreads();
    }
}

// Halve all nodes of one level, a team of blocks each, from one copy of the points to another.
extern "C" __global__ void __launch_bounds__(kThreads) split_level(
    const float* __restrict__ points,  // 3 x count
    const int* __restrict__ order,     // the points' indices
    int count,
    int depth,
    int cyclic,
    int team_size,                     // at most kLargestTeam
    Team* teams,                       // a team a node
    float* __restrict__ points_out,
    int* __restrict__ order_out,
    float* __restrict__ split,
    signed char* __restrict__ axis_of,
    float* __restrict__ boxes)         // inner nodes x 6: low and high corner
{
    __shared__ int bins[kBins];
    __shared__ Key prefix;
    __shared__ int rank, candidates;

    const int position = blockIdx.x / team_size, member = blockIdx.x % team_size;
    Team* const team = teams + position;
    const int node = (1 << depth) - 1 + position;
    const int node_start = begin_of(count, depth, position);
    const int node_end = begin_of(count, depth, position + 1);
    const int middle = begin_of(count, depth + 1, 2 * position + 1);
    // The block's share of the node's points.
    const long long size = node_end - node_start;
    const int start = node_start + static_cast<int>(size * member / team_size);
    const int end = node_start + static_cast<int>(size * (member + 1) / team_size);
    unsigned epoch = 0;

    float low[3] = {infinity(), infinity(), infinity()};
    float high[3] = {-infinity(), -infinity(), -infinity()};
    for (int i = start + threadIdx.x; i < end; i += kThreads) {
        for (int axis = 0; axis < 3; ++axis) {
            const float value = points[axis * count + i];
            low[axis] = fminf(low[axis], value);
            high[axis] = fmaxf(high[axis], value);
        }
    }
    for (int axis = 0; axis < 3; ++axis) {
        low[axis] = warp_min(low[axis]);
        high[axis] = -warp_min(-high[axis]);
        if (threadIdx.x % 32 == 0) {
            atomicMax(&team->low[axis], ~ordered(low[axis]));
            atomicMax(&team->high[axis], ordered(high[axis]));
        }
    }
    wait_for_team(team, team_size, epoch);
    for (int axis = 0; axis < 3; ++axis) {
        low[axis] = from_ordered(~__ldcg(&team->low[axis]));
        high[axis] = from_ordered(__ldcg(&team->high[axis]));
    }
    if (member == 0 && threadIdx.x < 3) {
        boxes[6 * node + threadIdx.x] = from_ordered(~__ldcg(&team->low[threadIdx.x]));
        boxes[6 * node + 3 + threadIdx.x] = from_ordered(__ldcg(&team->high[threadIdx.x]));
    }
    const int axis = choose_axis(low, high, depth, cyclic);
    const float* keys = points + (axis == kIdentical ? 0 : axis) * count;
    const auto key_of = [&](int i) {
        return static_cast<Key>(ordered(keys[i])) << 32 | static_cast<unsigned>(order[i]);
    };

    // Select the key of rank middle - node_start, digit by digit from the top, until it stands alone.
    int shift = 64;
    if (threadIdx.x == 0) {
        prefix = 0;
        rank = middle - node_start;
        candidates = node_end - node_start;
    }
    for (int bin = threadIdx.x; bin < kBins; bin += kThreads) {
        bins[bin] = 0;
    }
    __syncthreads();
    for (int round = 0; candidates > 1; ++round) {
        const int next = max(shift - kDigit, 0);
        const int width = shift - next;
        for (int i = start + threadIdx.x; i < end; i += kThreads) {
            const Key key = key_of(i);
            if (shift == 64 || key >> shift == prefix) {
                atomicAdd(&bins[(key >> next) & ((1 << width) - 1)], 1);
            }
        }
        __syncthreads();
        // Three banks take turns: one is added to, one may still be read, one is cleared.
        int* const bank = team->bins[round % 3];
        for (int bin = threadIdx.x; bin < kBins; bin += kThreads) {
            if (bins[bin]) {
                atomicAdd(&bank[bin], bins[bin]);
            }
            bins[bin] = 0;
        }
        wait_for_team(team, team_size, epoch);
        // Two bins a thread.
        const int first = __ldcg(&bank[2 * threadIdx.x]);
        const int second = __ldcg(&bank[2 * threadIdx.x + 1]);
        if (member == 0) {
            team->bins[(round + 2) % 3][2 * threadIdx.x] = 0;
            team->bins[(round + 2) % 3][2 * threadIdx.x + 1] = 0;
        }
        int total;
        const int before = exclusive_sum(first + second, total);
        const int wanted = rank;
        const Key known = prefix;
        __syncthreads();
        if (before <= wanted && wanted < before + first + second) {
            const bool in_first = wanted < before + first;
            prefix = known << width | static_cast<Key>(2 * threadIdx.x + (in_first ? 0 : 1));
            rank = wanted - before - (in_first ? 0 : first);
            candidates = in_first ? first : second;
        }
        shift = next;
        __syncthreads();
    }

    // Stable partition: first how many go left, block by block, then a tile of points at a time.
    const auto goes_left = [&](int i) {
        return i < end && shift < 64 && key_of(i) >> shift < prefix;
    };
    int left = node_start, right = middle;
    if (team_size > 1) {
        int lefts = 0;
        for (int tile = start; tile < end; tile += kThreads) {
            lefts += __syncthreads_count(goes_left(tile + threadIdx.x));
        }
        if (threadIdx.x == 0) {
            team->lefts[member] = lefts;
        }
        wait_for_team(team, team_size, epoch);
        for (int other = 0; other < member; ++other) {
            left += __ldcg(&team->lefts[other]);
        }
        right += (start - node_start) - (left - node_start);
    }
    for (int tile = start; tile < end; tile += kThreads) {
        const int i = tile + threadIdx.x;
        const bool is_left = goes_left(i);
        if (i < end && shift < 64 && key_of(i) >> shift == prefix) {
            split[node] = keys[i];
            axis_of[node] = static_cast<signed char>(axis);
        }
        int lefts;
        const int before = exclusive_sum(is_left ? 1 : 0, lefts);
        if (i < end) {
            const int to = is_left ? left + before : right + threadIdx.x - before;
            for (int k = 0; k < 3; ++k) {
                points_out[k * count + to] = points[k * count + i];
            }
            order_out[to] = order[i];
        }
        left += lefts;
        right += min(kThreads, end - tile) - lefts;
    }
}

// Build the subtrees below a level, a block each, in place.
extern "C" __global__ void __launch_bounds__(kThreads) split_subtrees(
    float* __restrict__ points,
    int* __restrict__ order,
    int count,
    int first_depth,
    int last_depth,
    int cyclic,
    float* __restrict__ split,
    signed char* __restrict__ axis_of,
    float* __restrict__ boxes)         // inner nodes x 6: low and high corner
{
    extern __shared__ Key keys[];  // kSubtree
    float* const xyz = reinterpret_cast<float*>(keys + kSubtree);   // 3 x kSubtree
    int* const indices = reinterpret_cast<int*>(xyz + 3 * kSubtree);  // kSubtree
    // The axis of each node of a level; the level's nodes begin at the same places as globally.
    signed char* const axes = reinterpret_cast<signed char*>(indices + kSubtree);  // kSubtree

    const int start = begin_of(count, first_depth, blockIdx.x);
    const int size = begin_of(count, first_depth, blockIdx.x + 1) - start;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Sorted in powers of two; what is too much stays at the end.
    int padded = 2;
    while (padded < size) {
        padded *= 2;
    }
    for (int i = threadIdx.x; i < size; i += kThreads) {
        for (int k = 0; k < 3; ++k) {
            xyz[k * kSubtree + i] = points[k * count + start + i];
        }
        indices[i] = order[start + i];
    }
    __syncthreads();

    for (int depth = first_depth; depth < last_depth; ++depth) {
        const int nodes = 1 << (depth - first_depth);
        const int first_position = blockIdx.x << (depth - first_depth);
        for (int n = warp; n < nodes; n += kWarps) {
            const int begin = begin_of(count, depth, first_position + n) - start;
            const int end = begin_of(count, depth, first_position + n + 1) - start;
            float low[3] = {infinity(), infinity(), infinity()};
            float high[3] = {-infinity(), -infinity(), -infinity()};
            for (int i = begin + lane; i < end; i += 32) {
                for (int k = 0; k < 3; ++k) {
                    low[k] = fminf(low[k], xyz[k * kSubtree + i]);
                    high[k] = fmaxf(high[k], xyz[k * kSubtree + i]);
                }
            }
            for (int k = 0; k < 3; ++k) {
                low[k] = warp_min(low[k]);
                high[k] = -warp_min(-high[k]);
            }
            const int axis = choose_axis(low, high, depth, cyclic);
            if (lane == 0) {
                const int node = (1 << depth) - 1 + first_position + n;
                axes[n] = static_cast<signed char>(axis);
                axis_of[node] = static_cast<signed char>(axis);
                for (int k = 0; k < 3; ++k) {
                    boxes[6 * node + k] = low[k];
                    boxes[6 * node + 3 + k] = high[k];
                }
            }
            __syncwarp();
            // Node, coordinate, place: 11, 32 and 11 bits.
            for (int i = begin + lane; i < end; i += 32) {
                const float value = xyz[(axis == kIdentical ? 0 : axis) * kSubtree + i];
                keys[i] = static_cast<Key>(n) << 43 | static_cast<Key>(ordered(value)) << 11 | i;
            }
        }
        for (int i = size + threadIdx.x; i < padded; i += kThreads) {
            keys[i] = ~0ULL;
        }
        __syncthreads();
        // Bitonic sort (Batcher, 1968): one exchange a thread and step.
        for (int length = 2; length <= padded; length *= 2) {
            for (int stride = length / 2; stride > 0; stride /= 2) {
                for (int pair = threadIdx.x; pair < padded / 2; pair += kThreads) {
                    const int a = 2 * pair - (pair & (stride - 1));
                    const int b = a + stride;
                    const bool ascending = (a & length) == 0;
                    if ((keys[a] > keys[b]) == ascending) {
                        const Key key = keys[a];
                        keys[a] = keys[b];
                        keys[b] = key;
                    }
                }
                __syncthreads();
            }
        }
        float moved[kSubtree / kThreads][3];
        int moved_index[kSubtree / kThreads];
        for (int n = 0; n < kSubtree / kThreads; ++n) {
            const int i = threadIdx.x + n * kThreads;
            if (i < size) {
                const int from = static_cast<int>(keys[i] & (kSubtree - 1));
                for (int k = 0; k < 3; ++k) {
                    moved[n][k] = xyz[k * kSubtree + from];
                }
                moved_index[n] = indices[from];
            }
        }
        __syncthreads();
        for (int n = 0; n < kSubtree / kThreads; ++n) {
            const int i = threadIdx.x + n * kThreads;
            if (i < size) {
                for (int k = 0; k < 3; ++k) {
                    xyz[k * kSubtree + i] = moved[n][k];
                }
                indices[i] = moved_index[n];
            }
        }
        __syncthreads();
        for (int n = threadIdx.x; n < nodes; n += kThreads) {
            const int middle = begin_of(count, depth + 1, 2 * (first_position + n) + 1) - start;
            const int axis = axes[n];
            split[(1 << depth) - 1 + first_position + n] =
                xyz[(axis == kIdentical ? 0 : axis) * kSubtree + middle];
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < size; i += kThreads) {
        for (int k = 0; k < 3; ++k) {
            points[k * count + start + i] = xyz[k * kSubtree + i];
        }
        order[start + i] = indices[i];
    }
}
