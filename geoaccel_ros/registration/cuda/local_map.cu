// local_map.py's additions and forgetting, each in one cooperative launch.

#include "barrier.cuh"
#include "compaction.cuh"
#include "deskew.cuh"
#include "local_map.cuh"

constexpr int kThreads = 256;

// local_map.py's.
struct Thresholds {
    double count_cap, fewest_for_a_normal;
    double flat, wide, standing, elongated, straight;
};

// A voxel that a sweep adds to, and where its points stand in the list.
struct Touched {
    int voxel, start, count;
};

struct AddArguments {
    LocalMap map;
    Thresholds thresholds;
    const double* points;  // count x 3
    const double* ages;
    // The sweep's voxels.
    FirstTable voxels;
    int* counts;           // of each slot: its points
    int* starts;           // of each slot: in the list, -1 where the map has no room for it
    double* moved;         // count x 3
    unsigned* slots;       // of each point
    int* found;            // of each voxel's first point: its index in the map, -1 for a new one
    int* list;             // points by voxel
    Touched* touched;
    int* cursors;          // 2: ends of list and touched
    int* new_counts;       // of each block
    int* host_size;
    unsigned* barrier;
    double pose[12];       // rows of (R | t), in the map's coordinates
    double twist[6];
    int count, planar;
};

// Welford's update, as in local_map.py's _add.
__device__ inline void add_point(double* row, const double* point, double count_cap)
{
    if (row[kCount] >= count_cap) {
        const double shrink = (count_cap - 1.0) / row[kCount];
        for (int k = kScatter; k < kRow; ++k) {
            row[k] *= shrink;
        }
        row[kCount] = count_cap - 1.0;
    }
    row[kCount] += 1.0;
    double before[3], after[3];
    for (int axis = 0; axis < 3; ++axis) {
        before[axis] = point[axis] - row[kMean + axis];
        row[kMean + axis] += before[axis] / row[kCount];
        after[axis] = point[axis] - row[kMean + axis];
    }
    row[kScatter] += before[0] * after[0];
    row[kScatter + 1] += before[0] * after[1];
    row[kScatter + 2] += before[0] * after[2];
    row[kScatter + 3] += before[1] * after[1];
    row[kScatter + 4] += before[1] * after[2];
    row[kScatter + 5] += before[2] * after[2];
}

__device__ inline void sort(int* numbers, int count)
{
    for (int i = 1; i < count; ++i) {
        const int number = numbers[i];
        int place = i;
        for (; place > 0 && numbers[place - 1] > number; --place) {
            numbers[place] = numbers[place - 1];
        }
        numbers[place] = number;
    }
}

// local_map.py's smallest_eigenvector.
__device__ inline void smallest_eigenvector(
    double xx, double xy, double xz, double yy, double yz, double zz, double* values, double* vector)
{
    const double mean = (xx + yy + zz) / 3.0;
    const double dx = xx - mean, dy = yy - mean, dz = zz - mean;
    const double spread = dx * dx + dy * dy + dz * dz + 2.0 * (xy * xy + xz * xz + yz * yz);
    vector[0] = 0.0, vector[1] = 0.0, vector[2] = 1.0;
    if (spread <= 1e-30) {
        values[0] = values[1] = values[2] = mean;
        return;
    }
    const double p = sqrt(spread / 6.0);
    const double a = dx / p, b = dy / p, c = dz / p, d = xy / p, e = xz / p, f = yz / p;
    const double half = 0.5 * (a * (b * c - f * f) - d * (d * c - f * e) + e * (d * f - b * e));
    const double angle = acos(fmin(1.0, fmax(-1.0, half))) / 3.0;
    values[2] = mean + 2.0 * p * cos(angle);
    values[0] = mean + 2.0 * p * cos(angle + 2.0943951023931954923);
    values[1] = 3.0 * mean - values[2] - values[0];
    const double rows[3][3] = {
        {xx - values[0], xy, xz}, {xy, yy - values[0], yz}, {xz, yz, zz - values[0]}};
    double best = 0.0;
#pragma unroll
    for (int pair = 0; pair < 3; ++pair) {
        const double* u = rows[pair == 2 ? 1 : 0];
        const double* v = rows[pair == 0 ? 1 : 2];
        const double x = u[1] * v[2] - u[2] * v[1];
        const double y = u[2] * v[0] - u[0] * v[2];
        const double z = u[0] * v[1] - u[1] * v[0];
        const double square = x * x + y * y + z * z;
        if (square > best) {
            best = square;
            const double length = sqrt(square);
            vector[0] = x / length, vector[1] = y / length, vector[2] = z / length;
        }
    }
}

// local_map.py's _line_normal.
__device__ inline bool line_normal(
    double xx, double xy, double yy, double straight, double* normal)
{
    const double mean = 0.5 * (xx + yy), half = 0.5 * (xx - yy);
    const double root = hypot(half, xy);
    if (mean - root >= straight * (mean + root)) {
        return false;
    }
    const double angle = 0.5 * atan2(xy, half) + 1.5707963267948966192;
    normal[0] = cos(angle), normal[1] = sin(angle);
    return true;
}

// What the covariance of a neighbourhood tells of it; fills in the unit vector that goes with it.
__device__ inline Kind kind_of(
    double xx,
    double xy,
    double xz,
    double yy,
    double yz,
    double zz,
    const Thresholds& thresholds,
    double* vector)
{
    double values[3];
    smallest_eigenvector(xx, xy, xz, yy, yz, zz, values, vector);
    Kind kind;
    if (values[1] > thresholds.wide * values[2]) {
        kind = values[0] < thresholds.flat * values[1] ? kPlane : kPoint;
    } else {
        const double least = thresholds.standing * thresholds.standing;
        kind = zz > least * (xx + yy + zz) ? kPoint : kLine;
    }
    if (kind == kPoint && values[1] > thresholds.elongated * values[2]) {
        vector[0] = vector[1] = vector[2] = 0.0;
    } else if (kind != kPlane) {
        smallest_eigenvector(-xx, -xy, -xz, -yy, -yz, -zz, values, vector);
    }
    return kind;
}

// What lies around one voxel, by a warp: each lane takes one of the 27 neighbours.
__device__ inline void update_normal(
    const LocalMap& map, const Thresholds& thresholds, int voxel, bool planar)
{
    const double* own = map.gaussians + kRow * static_cast<long long>(voxel);
    const double count_now = own[kCount], count_then = map.counts_at_normal[voxel];
    if (count_then < count_now && count_now < 1.1 * count_then) {
        return;
    }
    const int lane = threadIdx.x % 32;
    // Count; of n (x y z); of scatter with n (xx xy xz yy yz zz).
    double sums[kRow] = {};
    if (lane < 27) {
        const Key key = map.keys[voxel];
        const int neighbour = find(
            map.table, map.mask,
            pack((key >> 42) + lane / 9 - 1, (key >> 21 & kAxisBits) + lane / 3 % 3 - 1,
                 (key & kAxisBits) + lane % 3 - 1));
        if (neighbour >= 0) {
            const double* row = map.gaussians + kRow * static_cast<long long>(neighbour);
            const double n = row[kCount];
            // Relative to this voxel's mean: sums of squares of small numbers.
            const double x = row[kMean] - own[kMean], y = row[kMean + 1] - own[kMean + 1];
            const double z = row[kMean + 2] - own[kMean + 2];
            sums[kCount] = n;
            sums[kMean] = n * x, sums[kMean + 1] = n * y, sums[kMean + 2] = n * z;
            sums[kScatter] = row[kScatter] + n * x * x;
            sums[kScatter + 1] = row[kScatter + 1] + n * x * y;
            sums[kScatter + 2] = row[kScatter + 2] + n * x * z;
            sums[kScatter + 3] = row[kScatter + 3] + n * y * y;
            sums[kScatter + 4] = row[kScatter + 4] + n * y * z;
            sums[kScatter + 5] = row[kScatter + 5] + n * z * z;
        }
    }
#pragma unroll
    for (int k = 0; k < kRow; ++k) {
        for (int offset = 16; offset > 0; offset /= 2) {
            sums[k] += __shfl_down_sync(0xffffffffu, sums[k], offset);
        }
    }
    if (lane > 0) {
        return;
    }
    map.counts_at_normal[voxel] = count_now;
    double normal[3] = {};
    Kind kind = kNone;
    const double count = sums[kCount];
    if (count >= thresholds.fewest_for_a_normal) {
        const double x = sums[kMean] / count, y = sums[kMean + 1] / count;
        const double z = sums[kMean + 2] / count;
        const double xx = sums[kScatter] / count - x * x, xy = sums[kScatter + 1] / count - x * y;
        const double yy = sums[kScatter + 3] / count - y * y;
        if (planar) {
            kind = line_normal(xx, xy, yy, thresholds.straight, normal) ? kPlane : kPoint;
        } else {
            const double xz = sums[kScatter + 2] / count - x * z;
            const double yz = sums[kScatter + 4] / count - y * z;
            const double zz = sums[kScatter + 5] / count - z * z;
            kind = kind_of(xx, xy, xz, yy, yz, zz, thresholds, normal);
        }
    }
    map.kinds[voxel] = kind;
    for (int axis = 0; axis < 3; ++axis) {
        map.normals[3 * static_cast<long long>(voxel) + axis] = normal[axis];
    }
}

// Voxels are numbered in the order of their first points, and each takes its points in their order: on
// every device, however its threads run, and on the CPU, alike.
extern "C" __global__ void __launch_bounds__(kThreads) add(const AddArguments arguments)
{
    const AddArguments& a = arguments;
    const LocalMap& map = a.map;
    const int first = blockIdx.x * kThreads + threadIdx.x, stride = gridDim.x * kThreads;
    a.voxels.clear();
    for (unsigned slot = first; slot <= a.voxels.mask; slot += stride) {
        a.counts[slot] = 0;
    }
    if (first < 2) {
        a.cursors[first] = 0;
    }
    wait_for_all(a.barrier);

    for (int i = first; i < a.count; i += stride) {
        const double* from = a.points + 3 * static_cast<long long>(i);
        double* to = a.moved + 3 * static_cast<long long>(i);
        double x = from[0], y = from[1], z = from[2];
        move_along(a.pose, a.twist, a.ages[i], x, y, z);
        to[0] = x, to[1] = y, to[2] = z;
        const double scale = map.per_metre;
        const unsigned slot = a.voxels.insert(voxel_key(x * scale, y * scale, z * scale), i);
        atomicAdd(a.counts + slot, 1);
        a.slots[i] = slot;
    }
    wait_for_all(a.barrier);

    const Part part(a.count);
    const int size = *map.size;
    for (int i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
        const unsigned slot = a.slots[i];
        a.found[i] = __ldcg(a.voxels.firsts + slot) == i
                         ? find(map.table, map.mask, __ldcg(a.voxels.keys + slot))
                         : 0;
    }
    const auto is_new = [&](int i) { return a.found[i] < 0; };
    count_kept<kThreads>(part, a.new_counts, is_new);
    wait_for_all(a.barrier);

    // Make room in the list for the points of one voxel.
    const auto touch = [&](unsigned slot, int voxel) {
        const int count = __ldcg(a.counts + slot);
        const int start = atomicAdd(a.cursors, count);
        a.touched[atomicAdd(a.cursors + 1, 1)] = {voxel, start, count};
        a.starts[slot] = start;
    };
    for (int i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
        const unsigned slot = a.slots[i];
        if (!is_new(i) && __ldcg(a.voxels.firsts + slot) == i) {
            touch(slot, a.found[i]);
        }
    }
    const int added = take_kept<kThreads>(part, a.new_counts, is_new, [&](int i, int place) {
        const unsigned slot = a.slots[i];
        const int voxel = size + place;
        if (voxel >= map.capacity) {
            a.starts[slot] = -1;
            return;
        }
        const Key key = __ldcg(a.voxels.keys + slot);
        map.keys[voxel] = key;
        for (int k = 0; k < kRow; ++k) {
            map.gaussians[kRow * static_cast<long long>(voxel) + k] = 0.0;
        }
        map.counts_at_normal[voxel] = 0.0;
        insert(map.table, map.mask, key, voxel);
        touch(slot, voxel);
    });
    wait_for_all(a.barrier);

    if (first == 0) {
        *map.size = *a.host_size = min(size + added, map.capacity);
    }
    for (int i = first; i < a.count; i += stride) {
        const unsigned slot = a.slots[i];
        const int start = __ldcg(a.starts + slot);
        if (start >= 0) {
            a.list[start + atomicSub(a.counts + slot, 1) - 1] = i;
        }
    }
    wait_for_all(a.barrier);

    const int touched = __ldcg(a.cursors + 1);
    for (int t = first; t < touched; t += stride) {
        const Touched own = a.touched[t];
        int* list = a.list + own.start;
        sort(list, own.count);
        double* row = map.gaussians + kRow * static_cast<long long>(own.voxel);
        double gaussian[kRow];
        for (int k = 0; k < kRow; ++k) {
            gaussian[k] = row[k];
        }
        for (int k = 0; k < own.count; ++k) {
            add_point(
                gaussian, a.moved + 3 * static_cast<long long>(list[k]), a.thresholds.count_cap);
        }
        for (int k = 0; k < kRow; ++k) {
            row[k] = gaussian[k];
        }
    }
    wait_for_all(a.barrier);

    for (int t = first / 32; t < touched; t += stride / 32) {
        update_normal(map, a.thresholds, a.touched[t].voxel, a.planar);
    }
}

struct ForgetArguments {
    LocalMap map;
    // Where the arrays that stay go.
    Key* keys;
    double* gaussians;
    double* normals;
    double* counts_at_normal;
    Kind* kinds;
    int* counts;  // of each block
    int* host_size;
    unsigned* barrier;
    double centre[3];
    double limit;  // voxels whose mean is farther than this stay no longer, squared
};

extern "C" __global__ void __launch_bounds__(kThreads) forget(const ForgetArguments arguments)
{
    const ForgetArguments& a = arguments;
    const LocalMap& map = a.map;
    const int first = blockIdx.x * kThreads + threadIdx.x, stride = gridDim.x * kThreads;
    const int size = *map.size;
    const auto is_near = [&](int i) {
        double square = 0.0;
        for (int axis = 0; axis < 3; ++axis) {
            const double apart =
                map.gaussians[kRow * static_cast<long long>(i) + kMean + axis] - a.centre[axis];
            square += apart * apart;
        }
        return square <= a.limit;
    };
    const Part part(size);
    count_kept<kThreads>(part, a.counts, is_near);
    clear(map.table, map.mask);
    wait_for_all(a.barrier);

    const int kept = take_kept<kThreads>(part, a.counts, is_near, [&](int i, int place) {
        a.keys[place] = map.keys[i];
        for (int k = 0; k < kRow; ++k) {
            a.gaussians[kRow * static_cast<long long>(place) + k] =
                map.gaussians[kRow * static_cast<long long>(i) + k];
        }
        for (int axis = 0; axis < 3; ++axis) {
            a.normals[3 * static_cast<long long>(place) + axis] =
                map.normals[3 * static_cast<long long>(i) + axis];
        }
        a.counts_at_normal[place] = map.counts_at_normal[i];
        a.kinds[place] = map.kinds[i];
        insert(map.table, map.mask, map.keys[i], place);
    });
    if (first == 0) {
        *map.size = *a.host_size = kept;
    }
}
