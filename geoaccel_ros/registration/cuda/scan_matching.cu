// scan_matching.py's normal equations, from the points to their sums, in one cooperative launch.

#include "barrier.cuh"
#include "compaction.cuh"
#include "deskew.cuh"
#include "local_map.cuh"

constexpr int kThreads = 128;
// Threads that seek one point's voxel together, and points that a block takes at a time.
constexpr int kSeekers = 4;
constexpr int kTile = kThreads / kSeekers;

// As in scan_matching.py.
constexpr int kUpper = 21, kGradient = 3 * kUpper;
constexpr int kInliers = 75, kOutliers = 76, kGeometry = 78, kLength = 99;
// Beyond the sums the host reads the deviation.
constexpr int kDeviation = kLength;

// Up to so many voxels away the hash is searched; further away all means are.
constexpr double kHashRadius = 8.0;

// Distances are ranked by the bits of their float32, those to means behind all to planes.
constexpr unsigned kToMean = 0x80000000u;
constexpr unsigned kUnranked = ~0u;
// Bits of the three digits of a rank, from the highest, and places of their histograms.
constexpr int kShifts[3] = {21, 10, 0};
constexpr int kBins[3] = {2048, 2048, 1024};
constexpr int kPlaces[3] = {0, 2048, 4096};

struct Arguments {
    LocalMap map;
    const double* points;  // count x 3
    const double* ages;
    double* moved;         // count x 3
    int* matches;
    unsigned* distances;   // as ranked
    double* rows;          // kLength for each block
    unsigned* histograms;  // zero; left so
    unsigned* above;       // all bits set; left so
    double* outcome;       // kLength + 1, the host's
    unsigned* barrier;
    double pose[12];       // rows of (R | t), in the map's coordinates
    double twist[6];
    double radius;         // negative: the last call's matches serve
    double voxel, tolerance, least_deviation;
    double line_weight, point_weight, least_sine;
    int count, bent;
};

__device__ inline double infinity()
{
    return __longlong_as_double(0x7ff0000000000000LL);
}

// local_map.py's _gap.
__device__ inline double gap(double fraction, int step)
{
    const double distance = step > 0 ? step - fraction : step < 0 ? fraction - step - 1.0 : 0.0;
    return distance * distance;
}

struct Nearest {
    double square;
    int voxel;

    __device__ void take(const LocalMap& map, int other, double x, double y, double z, double most)
    {
        const double* mean = map.gaussians + kRow * static_cast<long long>(other) + kMean;
        const double dx = mean[0] - x, dy = mean[1] - y, dz = mean[2] - z;
        const double found = dx * dx + dy * dy + dz * dz;
        if (found < square && found <= most) {
            square = found, voxel = other;
        }
    }

    // The nearer of what the seekers found, to all of them.
    __device__ void share()
    {
        for (int offset = kSeekers / 2; offset > 0; offset /= 2) {
            const double theirs = __shfl_xor_sync(0xffffffffu, square, offset);
            const int other = __shfl_xor_sync(0xffffffffu, voxel, offset);
            if (theirs < square || (theirs == square && other < voxel)) {
                square = theirs, voxel = other;
            }
        }
    }
};

// local_map.py's _nearest_voxel, by all seekers of a point; `active` for no search but company.
__device__ inline int nearest_voxel(
    const LocalMap& map, double x, double y, double z, double radius, double voxel, bool active)
{
    const int seeker = threadIdx.x % kSeekers;
    Nearest nearest = {infinity(), -1};
    if (radius > kHashRadius * voxel) {
        if (active) {
            for (int other = seeker; other < *map.size; other += kSeekers) {
                nearest.take(map, other, x, y, z, radius * radius);
            }
        }
        nearest.share();
        return nearest.voxel;
    }
    const double scale = map.per_metre;
    const long long i = cell(x * scale), j = cell(y * scale), k = cell(z * scale);
    const double fx = x * scale - floor(x * scale), fy = y * scale - floor(y * scale);
    const double fz = z * scale - floor(z * scale);
    const double edge =
        fmin(fmin(fmin(fx, 1.0 - fx), fmin(fy, 1.0 - fy)), fmin(fz, 1.0 - fz));
    double limit = radius * scale * radius * scale;
    for (int shell = 0;; ++shell) {
        const double reach = shell - 1 + edge;
        const bool goes_on = active && (shell == 0 || reach * reach <= limit);
        if (!__any_sync(0xffffffffu, goes_on)) {
            return nearest.voxel;
        }
        if (goes_on) {
            // Columns of the shell in turn; inside it only its two faces are new.
            const int width = 2 * shell + 1;
            for (int column = seeker; column < width * width; column += kSeekers) {
                const int a = column / width - shell, b = column % width - shell;
                const double across = gap(fx, a) + gap(fy, b);
                if (across > limit) {
                    continue;
                }
                const int step = abs(a) == shell || abs(b) == shell ? 1 : 2 * shell;
                for (int c = -shell; c <= shell; c += step) {
                    if (across + gap(fz, c) > limit) {
                        continue;
                    }
                    const int other = find(map.table, map.mask, pack(i + a, j + b, k + c));
                    if (other >= 0) {
                        nearest.take(map, other, x, y, z, radius * radius);
                        limit = fmin(limit, nearest.square * scale * scale);
                    }
                }
            }
        }
        nearest.share();
        limit = fmin(limit, nearest.square * scale * scale);
    }
}

// Move, match and rank the distance of each point, and count the ranks' highest digits.
__device__ inline void measure(const Arguments& a)
{
    const LocalMap& map = a.map;
    for (int first = blockIdx.x * kTile; first < a.count; first += gridDim.x * kTile) {
        const int i = first + threadIdx.x / kSeekers;
        const bool active = i < a.count;
        double x = 0.0, y = 0.0, z = 0.0;
        if (active) {
            const double* point = a.points + 3 * static_cast<long long>(i);
            x = point[0], y = point[1], z = point[2];
            move_along(a.pose, a.twist, a.ages[i], x, y, z);
        }
        int match = active ? a.matches[i] : -1;
        if (a.radius >= 0.0) {
            match = nearest_voxel(map, x, y, z, a.radius, a.voxel, active);
        }
        if (!active || threadIdx.x % kSeekers > 0) {
            continue;
        }
        a.matches[i] = match;
        double* moved = a.moved + 3 * static_cast<long long>(i);
        moved[0] = x, moved[1] = y, moved[2] = z;
        const Kind kind = match < 0 ? kNone : map.kinds[match];
        if (kind == kNone || kind == kLine) {
            a.distances[i] = kUnranked;
            continue;
        }
        const double* mean = map.gaussians + kRow * static_cast<long long>(match) + kMean;
        const double* normal = map.normals + 3 * static_cast<long long>(match);
        x -= mean[0], y -= mean[1], z -= mean[2];
        const double distance = kind == kPlane ? fabs(normal[0] * x + normal[1] * y + normal[2] * z)
                                               : sqrt(x * x + y * y + z * z);
        const unsigned rank =
            __float_as_uint(static_cast<float>(distance)) | (kind == kPlane ? 0u : kToMean);
        a.distances[i] = rank;
        atomicAdd(a.histograms + kPlaces[0] + (rank >> kShifts[0]), 1u);
    }
}

// Call use(rank) for each ranked point of this thread, in measure's order.
template <typename Use>
__device__ inline void for_ranks(const Arguments& a, Use use)
{
    for (int first = blockIdx.x * kTile; first < a.count; first += gridDim.x * kTile) {
        const int i = first + threadIdx.x / kSeekers;
        if (i < a.count && threadIdx.x % kSeekers == 0 && a.distances[i] != kUnranked) {
            use(a.distances[i]);
        }
    }
}

struct Bin {
    unsigned digit, before, within, total;
};

// The bin of a histogram that holds the element at a place in the order, and how many elements are in
// the bins before it, in it, and in all; `place_of` is called with the counts of both halves.
template <typename PlaceOf>
__device__ inline Bin find_bin(const unsigned* histogram, int bins, PlaceOf place_of)
{
    __shared__ unsigned warps[kThreads / 32];
    __shared__ Bin found;
    const int share = bins / kThreads, lane = threadIdx.x % 32, own = threadIdx.x / 32;
    const unsigned* mine = histogram + share * threadIdx.x;
    unsigned count = 0;
    for (int k = 0; k < share; ++k) {
        count += __ldcg(mine + k);
    }
    unsigned end = count;
    for (int offset = 1; offset < 32; offset *= 2) {
        const unsigned lower = __shfl_up_sync(0xffffffffu, end, offset);
        end += lane >= offset ? lower : 0;
    }
    __syncthreads();
    if (lane == 31) {
        warps[own] = end;
    }
    __syncthreads();
    unsigned lower_half = 0, total = 0;
    for (int warp = 0; warp < kThreads / 32; ++warp) {
        end += warp < own ? warps[warp] : 0;
        lower_half += warp < kThreads / 64 ? warps[warp] : 0;
        total += warps[warp];
    }
    const unsigned place = place_of(lower_half, total - lower_half);
    if (threadIdx.x == 0) {
        found = {0, 0, 0, total};
    }
    __syncthreads();
    unsigned before = end - count;
    if (before <= place && place < end) {
        for (int k = 0; k < share; ++k) {
            const unsigned within = __ldcg(mine + k);
            if (place < before + within) {
                found = {static_cast<unsigned>(share * threadIdx.x + k), before, within, total};
                break;
            }
            before += within;
        }
    }
    __syncthreads();
    return found;
}

// scan_matching.py's _deviation: the median by its rank's digits, which the blocks count in turn.
__device__ inline double deviation_of(const Arguments& a)
{
    unsigned place = 0, count = 0;
    Bin bin = find_bin(a.histograms, kBins[0], [&](unsigned planes, unsigned means) {
        count = planes ? planes : means;
        place = count ? (count - 1) / 2 : 0;
        return place;
    });
    unsigned rank = bin.digit << kShifts[0];
    for (int digit = 1; digit < 3; ++digit) {
        unsigned* histogram = a.histograms + kPlaces[digit];
        const unsigned known = rank >> kShifts[digit - 1];
        for_ranks(a, [&](unsigned other) {
            if (other >> kShifts[digit - 1] == known) {
                atomicAdd(histogram + ((other >> kShifts[digit]) & (kBins[digit] - 1)), 1u);
            }
        });
        wait_for_all(a.barrier);
        place -= bin.before;
        bin = find_bin(histogram, kBins[digit], [&](unsigned, unsigned) { return place; });
        rank |= bin.digit << kShifts[digit];
    }
    // The mean of the two in the middle, where there are two.
    const bool same = count % 2 == 1 || place + 1 < bin.before + bin.within;
    if (!same) {
        unsigned least = ~0u;
        for_ranks(a, [&](unsigned other) { least = other > rank ? min(least, other) : least; });
        if (least != ~0u) {
            atomicMin(a.above, least);
        }
    }
    wait_for_all(a.barrier);
    if (blockIdx.x == 0) {
        for (int k = threadIdx.x; k < kPlaces[2] + kBins[2]; k += kThreads) {
            a.histograms[k] = 0;
        }
    }
    if (count == 0) {
        return a.least_deviation;
    }
    const unsigned next = same ? rank : __ldcg(a.above);
    const double lower = __uint_as_float(rank & ~kToMean), upper = __uint_as_float(next & ~kToMean);
    return fmax(1.4826 * (0.5 * (lower + upper)), a.least_deviation);
}

// The residuals of a tile's points: three rows for a match to a mean, one to a plane or a line.
struct Tile {
    double factors[kTile][3][7];  // derivatives by the pose, and the residual
    // Times the powers of the age, and without the robust kernel.
    double weights[kTile][4];
    double tallies[kTile][kGeometry - kInliers];
    int rows[kTile];
};

__device__ inline void fill(const Arguments& a, double width, int i, int k, Tile& tile)
{
    const int match = a.matches[i];
    double* tallies = tile.tallies[k];
    tallies[0] = tallies[1] = tallies[2] = 0.0;
    tile.rows[k] = 0;
    if (match < 0) {
        tallies[kOutliers - kInliers] = 1.0;
        return;
    }
    const Kind kind = a.map.kinds[match];
    if (kind == kNone) {
        return;
    }
    const double* moved = a.moved + 3 * static_cast<long long>(i);
    const double* mean = a.map.gaussians + kRow * static_cast<long long>(match) + kMean;
    const double* normal = a.map.normals + 3 * static_cast<long long>(match);
    const double x = moved[0] - mean[0], y = moved[1] - mean[1], z = moved[2] - mean[2];
    const double lx = moved[0] - a.pose[3], ly = moved[1] - a.pose[7], lz = moved[2] - a.pose[11];
    double weight = a.point_weight, kernel = 1.0;
    double(&rows)[3][7] = tile.factors[k];
    double nx = normal[0], ny = normal[1], nz = normal[2];
    if (kind != kPoint) {
        weight = 1.0;
        if (kind == kLine) {
            // Across the line and the ray.
            const double ax = ny * lz - nz * ly, ay = nz * lx - nx * lz, az = nx * ly - ny * lx;
            const double length = sqrt(ax * ax + ay * ay + az * az);
            if (length <= a.least_sine * sqrt(lx * lx + ly * ly + lz * lz)) {
                return;
            }
            nx = ax / length, ny = ay / length, nz = az / length;
            weight = a.line_weight;
        }
        const double error = nx * x + ny * y + nz * z, square = error * error;
        if (kind == kPlane) {
            const bool inlier = square <= a.tolerance * a.tolerance;
            tallies[0] = inlier ? 1.0 : 0.0;
            tallies[1] = inlier ? 0.0 : 1.0;
            tallies[2] = inlier ? square : 0.0;
        }
        rows[0][0] = nx, rows[0][1] = ny, rows[0][2] = nz;
        rows[0][3] = ly * nz - lz * ny, rows[0][4] = lz * nx - lx * nz;
        rows[0][5] = lx * ny - ly * nx, rows[0][6] = error;
        const double root = width * width / (width * width + square);
        kernel = root * root;
        tile.rows[k] = 1;
    } else {
        for (int axis = 0; axis < 3; ++axis) {
            // Without what the axis has of the direction of an edge or a pole.
            const double along = normal[axis];
            const double ux = (axis == 0) - along * nx, uy = (axis == 1) - along * ny;
            const double uz = (axis == 2) - along * nz;
            double* row = rows[axis];
            row[0] = ux, row[1] = uy, row[2] = uz;
            row[3] = ly * uz - lz * uy, row[4] = lz * ux - lx * uz, row[5] = lx * uy - ly * ux;
            row[6] = ux * x + uy * y + uz * z;
        }
        tile.rows[k] = 3;
    }
    const double age = a.bent ? a.ages[i] : 0.0;
    tile.weights[k][0] = kernel * weight;
    tile.weights[k][1] = kernel * weight * age;
    tile.weights[k][2] = kernel * weight * age * age;
    tile.weights[k][3] = weight;
}

// Which of a row's factors a sum multiplies, and the weight with them.
struct Product {
    int left, right, weight;

    __device__ explicit Product(int sum)
    {
        if (kGradient <= sum && sum < kInliers) {
            left = (sum - kGradient) % 6, right = 6, weight = (sum - kGradient) / 6;
            return;
        }
        const bool geometry = sum >= kGeometry;
        weight = geometry ? 3 : sum / kUpper;
        left = 0, right = geometry ? sum - kGeometry : sum % kUpper;
        // The upper triangle, row by row.
        for (int length = 6; right >= length; --length) {
            right -= length;
            ++left;
        }
        right += left;
    }
};

// Add up a block's points, each sum by one thread in the points' order.
__device__ inline void accumulate(const Arguments& a, double width)
{
    __shared__ Tile tile;
    const int own = threadIdx.x;
    const bool tallies = kInliers <= own && own < kGeometry;
    const Product product(tallies ? 0 : min(own, kLength - 1));
    double sum = 0.0;
    for (int first = blockIdx.x * kTile; first < a.count; first += gridDim.x * kTile) {
        const int count = min(kTile, a.count - first), k = own / kSeekers;
        if (own % kSeekers == 0 && k < count) {
            fill(a, width, first + k, k, tile);
        }
        __syncthreads();
        if (tallies) {
            for (int point = 0; point < count; ++point) {
                sum += tile.tallies[point][own - kInliers];
            }
        } else if (own < kLength) {
            for (int point = 0; point < count; ++point) {
                for (int row = 0; row < tile.rows[point]; ++row) {
                    const double* factors = tile.factors[point][row];
                    sum += tile.weights[point][product.weight] * factors[product.left] *
                           factors[product.right];
                }
            }
        }
        __syncthreads();
    }
    if (own < kLength) {
        a.rows[kLength * blockIdx.x + own] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) linearise(const Arguments arguments)
{
    const Arguments& a = arguments;
    measure(a);
    wait_for_all(a.barrier);
    const double deviation = deviation_of(a);
    accumulate(a, 3.0 * deviation);
    wait_for_all(a.barrier);
    if (blockIdx.x > 0) {
        return;
    }
    if (threadIdx.x < kLength) {
        double sum = 0.0;
#pragma unroll 8
        for (int block = 0; block < gridDim.x; ++block) {
            sum += __ldcg(a.rows + kLength * block + threadIdx.x);
        }
        a.outcome[threadIdx.x] = sum;
    }
    if (threadIdx.x == kDeviation) {
        a.outcome[kDeviation] = deviation;
        *a.above = ~0u;
    }
}
