// sweep.py's thin in one cooperative launch, and a sweep's points as they are at its end.

#include "barrier.cuh"
#include "compaction.cuh"
#include "deskew.cuh"
#include "voxels.cuh"

constexpr int kThreads = 256;

// What the host reads.
struct Outcome {
    double middle, end, reach;
    int count, matched;
};

struct Arguments {
    const void* xyz;      // float or double
    const double* times;  // may be null
    FirstTable mapped_voxels, matched_voxels;
    unsigned* slots;      // of each point in a table
    unsigned* matched_slots;
    // What is made: for the map, and what of it is matched.
    double* points;       // x 3
    double* ages;
    double* matched;      // x 3
    double* matched_ages;
    // For each block.
    int* counts;
    int* matched_counts;
    double* sums;
    double* largest;
    int* broken;
    double* squares;
    Outcome* outcome;
    unsigned* barrier;
    double per_metre, matched_per_metre;  // voxels
    double min_square, max_square;
    int count, is_double;
    int point_stride, axis_stride;  // of xyz
};

constexpr unsigned kOutOfRange = ~0u;

// preprocess.py's _in_range, rounded like it.
__device__ inline bool in_range(double x, double y, double z, const Arguments& arguments)
{
    const double square = __dadd_rn(__dadd_rn(__dmul_rn(x, x), __dmul_rn(y, y)), __dmul_rn(z, z));
    return square >= arguments.min_square && square <= arguments.max_square &&
           square < __longlong_as_double(0x7ff0000000000000LL);
}

template <typename Number>
__device__ inline void load_as(const Arguments& a, int i, double& x, double& y, double& z)
{
    const Number* point =
        static_cast<const Number*>(a.xyz) + static_cast<long long>(i) * a.point_stride;
    x = point[0], y = point[a.axis_stride], z = point[2 * static_cast<long long>(a.axis_stride)];
}

__device__ inline void load(const Arguments& arguments, int i, double& x, double& y, double& z)
{
    if (arguments.is_double) {
        load_as<double>(arguments, i, x, y, z);
    } else {
        load_as<float>(arguments, i, x, y, z);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) thin(const Arguments arguments)
{
    const Arguments& a = arguments;
    const int first = blockIdx.x * kThreads + threadIdx.x, stride = gridDim.x * kThreads;
    a.mapped_voxels.clear();
    a.matched_voxels.clear();
    wait_for_all(a.barrier);

    for (int i = first; i < a.count; i += stride) {
        double x, y, z;
        load(a, i, x, y, z);
        const double scale = a.per_metre;
        a.slots[i] = in_range(x, y, z, a)
                         ? a.mapped_voxels.insert(voxel_key(x * scale, y * scale, z * scale), i)
                         : kOutOfRange;
    }
    wait_for_all(a.barrier);

    const auto is_first = [&](int i) {
        const unsigned slot = a.slots[i];
        return slot != kOutOfRange && __ldcg(a.mapped_voxels.firsts + slot) == i;
    };
    const Part part(a.count);
    count_kept<kThreads>(part, a.counts, is_first);
    wait_for_all(a.barrier);

    double sum = 0.0, largest = -__longlong_as_double(0x7ff0000000000000LL);
    int broken = 0;
    const int count = take_kept<kThreads>(part, a.counts, is_first, [&](int i, int place) {
        double x, y, z;
        load(a, i, x, y, z);
        const double time = a.times == nullptr ? 0.0 : a.times[i];
        sum += time;
        largest = fmax(largest, time);
        broken += isfinite(time) ? 0 : 1;
        double* point = a.points + 3 * static_cast<long long>(place);
        point[0] = x, point[1] = y, point[2] = z;
        a.ages[place] = time;
        const double scale = a.matched_per_metre;
        a.matched_slots[place] =
            a.matched_voxels.insert(voxel_key(x * scale, y * scale, z * scale), place);
    });
    const auto larger = [](double p, double q) { return fmax(p, q); };
    sum = sum_block<kThreads>(sum);
    largest = reduce_block<kThreads>(largest, largest, larger);
    broken = sum_block<kThreads>(broken);
    if (threadIdx.x == 0) {
        a.sums[blockIdx.x] = sum;
        a.largest[blockIdx.x] = largest;
        a.broken[blockIdx.x] = broken;
    }
    wait_for_all(a.barrier);

    sum = 0.0, broken = 0;
    for (int block = threadIdx.x; block < gridDim.x; block += kThreads) {
        sum += __ldcg(a.sums + block);
        largest = fmax(largest, __ldcg(a.largest + block));
        broken += __ldcg(a.broken + block);
    }
    sum = sum_block<kThreads>(sum);
    largest = reduce_block<kThreads>(largest, largest, larger);
    broken = sum_block<kThreads>(broken);
    const bool timed = count > 0 && broken == 0;
    const double middle = timed ? sum / count : 0.0;
    const Part kept(count);
    for (int i = kept.begin + threadIdx.x; i < kept.end; i += kThreads) {
        a.ages[i] = timed ? __ldcg(a.ages + i) - middle : 0.0;
    }
    const auto is_matched = [&](int i) {
        return __ldcg(a.matched_voxels.firsts + __ldcg(a.matched_slots + i)) == i;
    };
    count_kept<kThreads>(kept, a.matched_counts, is_matched);
    wait_for_all(a.barrier);

    double squares = 0.0;
    const int matched = take_kept<kThreads>(kept, a.matched_counts, is_matched, [&](int i, int place) {
        const double* from = a.points + 3 * static_cast<long long>(i);
        double* to = a.matched + 3 * static_cast<long long>(place);
        for (int axis = 0; axis < 3; ++axis) {
            const double coordinate = __ldcg(from + axis);
            to[axis] = coordinate;
            squares += coordinate * coordinate;
        }
        a.matched_ages[place] = a.ages[i];
    });
    squares = sum_block<kThreads>(squares);
    if (threadIdx.x == 0) {
        a.squares[blockIdx.x] = squares;
    }
    wait_for_all(a.barrier);

    if (blockIdx.x == 0) {
        squares = 0.0;
        for (int block = threadIdx.x; block < gridDim.x; block += kThreads) {
            squares += __ldcg(a.squares + block);
        }
        squares = sum_block<kThreads>(squares);
        if (threadIdx.x == 0) {
            a.outcome->middle = middle;
            a.outcome->end = timed ? largest : 0.0;
            a.outcome->reach = matched ? sqrt(squares / matched) : 0.0;
            a.outcome->count = count;
            a.outcome->matched = matched;
        }
    }
}

struct EndArguments {
    const double* points;  // count x 3
    const double* ages;
    double* moved;         // count x 3, the host's
    double twist[6];
    double instant;
    int count;
};

extern "C" __global__ void at_end(const EndArguments arguments)
{
    constexpr double identity[12] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < arguments.count;
         i += gridDim.x * blockDim.x) {
        const double* from = arguments.points + 3 * static_cast<long long>(i);
        double* to = arguments.moved + 3 * static_cast<long long>(i);
        double x = from[0], y = from[1], z = from[2];
        move_along(identity, arguments.twist, arguments.ages[i] - arguments.instant, x, y, z);
        to[0] = x, to[1] = y, to[2] = z;
    }
}
