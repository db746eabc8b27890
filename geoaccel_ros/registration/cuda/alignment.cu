// Iterative closest point on the device: the whole loop in one launch.
//
// The loop, its sums and its ends are those of alignment.py, residuals.py and solve.py, where they are
// explained. All blocks of the launch run at once (a cooperative launch); between the steps of an
// iteration they wait for each other. One thread of the first block solves.

#include "barrier.cuh"
#include "kdtree.cuh"
#include "linear_algebra.cuh"

constexpr int kThreads = BLOCK_THREADS;
constexpr int kWarps = kThreads / 32;

// Compiled for one method and shape of the launch.
enum Method { kPointToPoint, kPointToPlane, kGicp };
constexpr Method kMethod = static_cast<Method>(METHOD);
enum Kernel { kNone, kHuber, kCauchy, kGemanMcClure };
enum Stop { kResidual = 1, kStep, kIterations, kNoOverlap, kDegenerate, kNotFinite };

// A row of sums, as in residuals.py.
constexpr int kCount = 0, kWeights = 1, kSquares = 2, kError = 3, kLevers = 4;
constexpr int kSumP = 5, kSumM = 8, kCross = 11, kSecond = 20, kSquareM = 26;
constexpr int kGradient = 5, kHessian = 11;
constexpr int kLength = 32;

// As in matching.py.
constexpr float kLeastMargin = 0.1f, kMargin = 2.0f, kFarthest = 0.5f;
constexpr float kSlack = 1.0f - 1e-6f;
// As in residuals.py, alignment.py and solve.py.
constexpr double kEpsilon = 1e-3;
constexpr double kSigmas = 3.0;
constexpr double kRounding = 1e-12;
constexpr double kDegenerateShare = kMethod == kGicp ? 3e-3 : 1e-3;

struct Settings {
    float max_distance;
    float overlap_square;
    float spacing;
    int three_sigma;
    int kernel;
    double kernel_width;
    int max_iterations;
    double relative_change;
    double least_step;
};

// What the blocks share and the host reads.
struct State {
    double pose[12];   // rows of (R | t)
    double trial[12];
    double limit;      // squared
    double sums[kLength];
    int stop;
    int iterations;
    int matched;
    unsigned barrier;
    int searched;      // source points that a warp has taken on in this iteration
};

struct Pose {
    double m[12];

    __device__ double x(double a, double b, double c) const
    {
        return m[0] * a + m[1] * b + m[2] * c + m[3];
    }
    __device__ double y(double a, double b, double c) const
    {
        return m[4] * a + m[5] * b + m[6] * c + m[7];
    }
    __device__ double z(double a, double b, double c) const
    {
        return m[8] * a + m[9] * b + m[10] * c + m[11];
    }
};

// Not through the read-only cache: the solving thread writes it during the launch.
__device__ inline Pose load(const double* source)
{
    Pose pose;
#pragma unroll
    for (int i = 0; i < 12; ++i) {
        pose.m[i] = __ldcg(source + i);
    }
    return pose;
}

// matching.py's _update for one point; returns whether its match lies within the overlap distance.
__device__ inline bool update_match(
    const Tree& tree,
    const Pose& pose,
    const Settings& settings,
    float a,
    float b,
    float c,
    int i,
    int source_count,
    float* places,
    float* clear,
    int* matches)
{
    const float qx = static_cast<float>(pose.x(a, b, c));
    const float qy = static_cast<float>(pose.y(a, b, c));
    const float qz = static_cast<float>(pose.z(a, b, c));
    const float moved = sqrtf(square_norm(
        qx - places[i], qy - places[source_count + i], qz - places[2 * source_count + i]));
    const int known = matches[i];
    const float radius = settings.max_distance;
    float distance = radius, nearest = infinity();
    if (known >= 0) {
        nearest = square_norm(tree.x[known] - qx, tree.y[known] - qy, tree.z[known] - qz);
        distance = sqrtf(nearest);
    }
    if (distance <= radius && distance + moved < clear[i] * kSlack) {
        return nearest <= settings.overlap_square;
    }
    float margin = kLeastMargin * settings.spacing;
    if (moved < kFarthest * settings.spacing) {
        margin = fmaxf(margin, kMargin * moved);
    }
    const auto widened = [margin](float square) {
        const float reach = sqrtf(square) + margin;
        return reach * reach;
    };
    int match = -1;
    float limit = (radius + margin) * (radius + margin);
    if (nearest < limit) {
        match = known;
        limit = fminf(limit, widened(nearest));
    } else {
        nearest = infinity();
    }
    traverse(tree, qx, qy, qz, limit, [&](int start, int end, bool identical) {
        const int last = identical ? start + 1 : end;
        scan(tree, start, last, qx, qy, qz, [&](float square, int k) {
            if (square < limit && k != match) {
                if (square < nearest) {
                    limit = fminf(fminf(limit, nearest), widened(square));
                    nearest = square;
                    match = k;
                } else {
                    limit = square;
                }
            }
        });
    });
    const bool matched = nearest <= radius * radius;
    matches[i] = matched ? match : -1;
    clear[i] = matched ? sqrtf(limit) : sqrtf(fminf(nearest, limit));
    places[i] = qx;
    places[source_count + i] = qy;
    places[2 * source_count + i] = qz;
    return matched && nearest <= settings.overlap_square;
}

__device__ inline double weight_of(const Settings& settings, double square)
{
    const double width = settings.kernel_width;
    switch (settings.kernel) {
        case kHuber:
            return square <= width * width ? 1.0 : width / sqrt(square);
        case kCauchy:
            return 1.0 / (1.0 + square / (width * width));
        case kGemanMcClure: {
            const double ratio = 1.0 + square / (width * width);
            return 1.0 / (ratio * ratio);
        }
        default:
            return 1.0;
    }
}

// residuals.py's _metric: symmetric, xx xy xz yy yz zz.
__device__ inline void surface_metric(
    const Pose& pose,
    const float* source_normals,
    int i,
    int source_count,
    const float* target_normals,
    int match,
    int target_count,
    double (&metric)[6])
{
    const double nx = target_normals[match];
    const double ny = target_normals[target_count + match];
    const double nz = target_normals[2 * target_count + match];
    if (kMethod == kPointToPlane) {
        metric[0] = nx * nx, metric[1] = nx * ny, metric[2] = nx * nz;
        metric[3] = ny * ny, metric[4] = ny * nz, metric[5] = nz * nz;
        return;
    }
    const double a = source_normals[i];
    const double b = source_normals[source_count + i];
    const double c = source_normals[2 * source_count + i];
    const double mx = pose.x(a, b, c) - pose.m[3];
    const double my = pose.y(a, b, c) - pose.m[7];
    const double mz = pose.z(a, b, c) - pose.m[11];
    const double k = 1.0 - kEpsilon;
    const double xx = 2.0 - k * (nx * nx + mx * mx);
    const double yy = 2.0 - k * (ny * ny + my * my);
    const double zz = 2.0 - k * (nz * nz + mz * mz);
    const double xy = -k * (nx * ny + mx * my);
    const double xz = -k * (nx * nz + mx * mz);
    const double yz = -k * (ny * nz + my * mz);
    const double c00 = yy * zz - yz * yz;
    const double c01 = xz * yz - xy * zz;
    const double c02 = xy * yz - xz * yy;
    const double scale = 2.0 * kEpsilon / (xx * c00 + xy * c01 + xz * c02);
    metric[0] = scale * c00, metric[1] = scale * c01, metric[2] = scale * c02;
    metric[3] = scale * (xx * zz - xz * xz), metric[4] = scale * (xy * xz - xx * yz);
    metric[5] = scale * (xx * yy - xy * xy);
}

__device__ inline double squared(const double (&metric)[6], double x, double y, double z)
{
    return x * (metric[0] * x + 2.0 * (metric[1] * y + metric[2] * z)) +
           y * (metric[3] * y + 2.0 * metric[4] * z) + z * metric[5] * z;
}

struct Clouds {
    const float* source;  // 3 x source_count
    const float* source_normals;
    int source_count;
    Tree tree;
    const float* target_normals;
};

// Add one match to a thread's sums, unless its squared residual at `trial` is above the limit.
__device__ inline void add_match(
    const Clouds& clouds,
    const Settings& settings,
    const Pose& pose,
    const Pose& trial,
    double limit,
    int i,
    int match,
    double (&sums)[kLength])
{
    const int stride = clouds.source_count;
    const double a = clouds.source[i], b = clouds.source[stride + i], c = clouds.source[2 * stride + i];
    const double u = clouds.tree.x[match], v = clouds.tree.y[match], w = clouds.tree.z[match];
    double metric[6];
    if (limit < infinity()) {
        const double x = trial.x(a, b, c) - u;
        const double y = trial.y(a, b, c) - v;
        const double z = trial.z(a, b, c) - w;
        double square = x * x + y * y + z * z;
        if (kMethod != kPointToPoint) {
            surface_metric(
                trial, clouds.source_normals, i, stride, clouds.target_normals, match,
                clouds.tree.count, metric);
            square = squared(metric, x, y, z);
        }
        if (square > limit) {
            return;
        }
    }
    const double x = pose.x(a, b, c), y = pose.y(a, b, c), z = pose.z(a, b, c);
    const double ex = x - u, ey = y - v, ez = z - w;
    double square = ex * ex + ey * ey + ez * ez;
    if (kMethod != kPointToPoint) {
        surface_metric(
            pose, clouds.source_normals, i, stride, clouds.target_normals, match,
            clouds.tree.count, metric);
        square = squared(metric, ex, ey, ez);
    }
    const double h = weight_of(settings, square);
    sums[kCount] += 1.0;
    sums[kWeights] += h;
    sums[kSquares] += square;
    sums[kError] += h * square;
    sums[kLevers] += a * a + b * b + c * c;
    if (kMethod == kPointToPoint) {
        const double p[3] = {h * a, h * b, h * c};
        const double m[3] = {u, v, w};
        const double q[3] = {a, b, c};
        int second = kSecond;
#pragma unroll
        for (int r = 0; r < 3; ++r) {
            sums[kSumP + r] += p[r];
            sums[kSumM + r] += h * m[r];
#pragma unroll
            for (int s = 0; s < 3; ++s) {
                sums[kCross + 3 * r + s] += m[r] * p[s];
                if (s >= r) {
                    sums[second++] += p[r] * q[s];
                }
            }
        }
        sums[kSquareM] += h * (u * u + v * v + w * w);
        return;
    }
    const double lx = x - pose.m[3], ly = y - pose.m[7], lz = z - pose.m[11];
    // Rows of (I, -[l]x).
    const double jacobian[3][6] = {
        {1.0, 0.0, 0.0, 0.0, lz, -ly},
        {0.0, 1.0, 0.0, -lz, 0.0, lx},
        {0.0, 0.0, 1.0, ly, -lx, 0.0}};
    double weighted[3][6];
#pragma unroll
    for (int n = 0; n < 6; ++n) {
        const double jx = h * jacobian[0][n], jy = h * jacobian[1][n], jz = h * jacobian[2][n];
        weighted[0][n] = metric[0] * jx + metric[1] * jy + metric[2] * jz;
        weighted[1][n] = metric[1] * jx + metric[3] * jy + metric[4] * jz;
        weighted[2][n] = metric[2] * jx + metric[4] * jy + metric[5] * jz;
    }
    int place = kHessian;
#pragma unroll
    for (int m = 0; m < 6; ++m) {
        sums[kGradient + m] += weighted[0][m] * ex + weighted[1][m] * ey + weighted[2][m] * ez;
#pragma unroll
        for (int n = m; n < 6; ++n) {
            sums[place++] += jacobian[0][m] * weighted[0][n] + jacobian[1][m] * weighted[1][n] +
                             jacobian[2][m] * weighted[2][n];
        }
    }
}

// Add up the threads' sums over a block, in a fixed order, into its row.
__device__ inline void sum_block(double (&sums)[kLength], double* row)
{
    __shared__ double shared[kWarps][kLength];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < kLength; ++k) {
        double sum = sums[k];
        for (int offset = 16; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(0xffffffffu, sum, offset);
        }
        if (lane == 0) {
            shared[warp][k] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < kLength) {
        double sum = 0.0;
        for (int w = 0; w < kWarps; ++w) {
            sum += shared[w][threadIdx.x];
        }
        __stcg(row + threadIdx.x, sum);
    }
    __syncthreads();
}

// Add up the blocks' rows; called by one block.
__device__ inline void sum_rows(const double* rows, double* sums)
{
    __shared__ double shared[kWarps][kLength];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sum = 0.0;
    for (int row = warp; row < gridDim.x; row += kWarps) {
        sum += __ldcg(rows + row * kLength + lane);
    }
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = 0.0;
        for (int w = 0; w < kWarps; ++w) {
            sum += shared[w][lane];
        }
        sums[lane] = sum;
    }
    __syncthreads();
}

// The Hessian with rotations counted in radii of the cloud; returns the radius, 1 for none.
__device__ inline double scaled_hessian(
    const double* pose, const double* sums, double (&hessian)[6][6])
{
    const double square = sums[kLevers] / sums[kCount];
    const double radius = square > 0.0 ? sqrt(square) : 1.0;
    if (kMethod == kPointToPoint) {
        point_hessian(pose, sums[kWeights], sums + kSumP, sums + kSecond, hessian);
    } else {
        unpack_upper(sums + kHessian, hessian);
    }
    for (int m = 0; m < 6; ++m) {
        for (int n = 0; n < 6; ++n) {
            hessian[m][n] /= (m < 3 ? 1.0 : radius) * (n < 3 ? 1.0 : radius);
        }
    }
    return radius;
}

__device__ __noinline__ bool is_degenerate(const double* pose, const double* sums)
{
    double hessian[6][6];
    scaled_hessian(pose, sums, hessian);
    return has_small_eigenvalue(hessian, kDegenerateShare);
}

// alignment.py's _unsolvable; 0 where the sums can be solved.
__device__ __noinline__ int unsolvable(const double* pose, const double* sums)
{
    if (sums[kCount] < (kMethod == kPointToPoint ? 3.0 : 6.0)) {
        return kNoOverlap;
    }
    for (int k = 0; k < kLength; ++k) {
        if (!isfinite(sums[k])) {
            return kNotFinite;
        }
    }
    return kMethod == kPointToPoint && is_degenerate(pose, sums) ? kDegenerate : 0;
}

// solve.py's fit: writes the pose, returns the weighted mean square of the residuals there.
__device__ __noinline__ double fit(const double* pose, const double* sums, double* fitted)
{
    if (kMethod == kPointToPoint) {
        return rigid_fit(
            sums[kWeights], sums + kSumP, sums + kSumM, sums + kCross, sums + kSecond,
            sums[kSquareM], fitted);
    }
    double hessian[6][6], gradient[6], step[6];
    const double radius = scaled_hessian(pose, sums, hessian);
    for (int m = 0; m < 6; ++m) {
        gradient[m] = sums[kGradient + m] / (m < 3 ? 1.0 : radius);
    }
    solve_observed(hessian, kDegenerateShare, gradient, step);
    double change = 0.0;
    for (int m = 0; m < 6; ++m) {
        // H x = g in what is observed: with x = -step, 2 g'step + step'H step = -g'x.
        change -= gradient[m] * step[m];
        step[m] /= m < 3 ? -1.0 : -radius;
    }
    perturb(pose, step, fitted);
    return fmax(0.0, (sums[kError] + change) / sums[kWeights]);
}

__device__ inline void iterate(
    const Clouds& clouds,
    const Settings& settings,
    float* places,
    float* clear,
    int* matches,
    double* rows,
    State* state,
    double* poses,
    double* trace,
    int* near)
{
    __shared__ double totals[kLength];
    const int first = blockIdx.x * kThreads + threadIdx.x;
    const int stride = gridDim.x * kThreads;
    double step = infinity();
    int calm = 0;
    for (int iteration = 0;; ++iteration) {
        const Pose pose = load(state->pose);
        double sums[kLength] = {};
        // Warps take points as they get on: at the border of the target a search takes several times
        // as long as inside. It tells nothing of the order in which sums are added.
        for (;;) {
            int base = 0;
            if (threadIdx.x % 32 == 0) {
                base = atomicAdd(&state->searched, 32);
            }
            base = __shfl_sync(0xffffffffu, base, 0);
            if (base >= clouds.source_count) {
                break;
            }
            const int i = base + threadIdx.x % 32;
            bool is_near = false;
            if (i < clouds.source_count) {
                is_near = update_match(
                    clouds.tree, pose, settings, clouds.source[i],
                    clouds.source[clouds.source_count + i],
                    clouds.source[2 * clouds.source_count + i], i, clouds.source_count, places,
                    clear, matches);
            }
            const unsigned votes = __ballot_sync(0xffffffffu, is_near);
            if (threadIdx.x % 32 == 0 && votes) {
                atomicAdd(&near[iteration], __popc(votes));
            }
        }
        wait_for_all(&state->barrier);
        for (int i = first; i < clouds.source_count; i += stride) {
            if (matches[i] >= 0) {
                add_match(clouds, settings, pose, pose, infinity(), i, matches[i], sums);
            }
        }
        sum_block(sums, rows + blockIdx.x * kLength);
        wait_for_all(&state->barrier);

        if (blockIdx.x == 0) {
            sum_rows(rows, totals);
            if (threadIdx.x == 0) {
                state->matched = static_cast<int>(totals[kCount]);
                state->searched = 0;
                int stop = unsolvable(state->pose, totals);
                if (!stop && settings.three_sigma) {
                    const double mean_square = fit(state->pose, totals, state->trial);
                    state->limit = kSigmas * kSigmas *
                                   (mean_square + kRounding * totals[kLevers] / totals[kCount]);
                }
                state->stop = stop;
            }
        }
        if (settings.three_sigma) {
            wait_for_all(&state->barrier);
            const int stop = *static_cast<volatile int*>(&state->stop);
            if (!stop) {
                const Pose trial = load(state->trial);
                const double limit = __ldcg(&state->limit);
                for (int k = 0; k < kLength; ++k) {
                    sums[k] = 0.0;
                }
                for (int i = first; i < clouds.source_count; i += stride) {
                    if (matches[i] >= 0) {
                        add_match(
                            clouds, settings, pose, trial, limit, i, matches[i], sums);
                    }
                }
                sum_block(sums, rows + blockIdx.x * kLength);
                wait_for_all(&state->barrier);
                if (blockIdx.x == 0) {
                    sum_rows(rows, totals);
                    if (threadIdx.x == 0) {
                        state->stop = unsolvable(state->pose, totals);
                    }
                }
            }
        }

        if (blockIdx.x == 0 && threadIdx.x == 0) {
            const double mean_square = totals[kSquares] / totals[kCount];
            if (iteration > 0) {
                const double before = trace[iteration - 1];
                const bool same = fabs(before - mean_square) < settings.relative_change * before;
                calm = same ? calm + 1 : 0;
            }
            trace[iteration] = mean_square;
            for (int k = 0; k < 12; ++k) {
                poses[12 * iteration + k] = state->pose[k];
            }
            int stop = state->stop;
            if (!stop) {
                stop = step < settings.least_step             ? kStep
                       : calm == 2                            ? kResidual
                       : iteration == settings.max_iterations ? kIterations
                                                              : 0;
                if (stop && is_degenerate(state->pose, totals)) {
                    stop = kDegenerate;
                }
            }
            if (stop) {
                for (int k = 0; k < kLength; ++k) {
                    state->sums[k] = totals[k];
                }
                state->iterations = iteration;
            } else {
                double moved[12];
                fit(state->pose, totals, moved);
                step = 0.0;
                for (int k = 0; k < 12; ++k) {
                    step = fmax(step, fabs(moved[k] - state->pose[k]));
                    state->pose[k] = moved[k];
                }
            }
            state->stop = stop;
        }
        wait_for_all(&state->barrier);
        if (*static_cast<volatile int*>(&state->stop)) {
            return;
        }
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS_PER_MULTIPROCESSOR) align(
    const float* __restrict__ source,
    const float* __restrict__ source_normals,
    int source_count,
    const float* __restrict__ split,
    const signed char* __restrict__ axis,
    const float* __restrict__ boxes,
    const int* __restrict__ starts,
    const float* __restrict__ points,
    int count,
    int inner,
    const float* __restrict__ target_normals,
    float max_distance,
    float overlap_distance,
    float spacing,
    int three_sigma,
    int kernel,
    double kernel_width,
    int max_iterations,
    double relative_change,
    double least_step,
    float* places,
    float* clear,
    int* matches,
    double* rows,
    State* state,
    double* poses,
    double* trace,
    int* near)
{
    const Tree tree = make_tree(split, axis, boxes, starts, points, count, inner);
    const Clouds clouds = {source, source_normals, source_count, tree, target_normals};
    const Settings settings = {max_distance, overlap_distance * overlap_distance,
                               spacing, three_sigma, kernel, kernel_width,
                               max_iterations, relative_change, least_step};
    iterate(clouds, settings, places, clear, matches, rows, state, poses, trace, near);
}
