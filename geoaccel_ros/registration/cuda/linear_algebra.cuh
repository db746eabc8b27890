// Small dense problems in float64, each solved by one thread.

#pragma once

// A symmetric matrix from its upper triangle, row by row.
__device__ inline void unpack_upper(const double* upper, double (&matrix)[6][6])
{
    int place = 0;
    for (int m = 0; m < 6; ++m) {
        for (int n = m; n < 6; ++n) {
            matrix[m][n] = matrix[n][m] = upper[place++];
        }
    }
}

// Factor a symmetric matrix into L L' in place (lower triangle); false if it is not positive definite.
__device__ inline bool factor_cholesky(double (&matrix)[6][6])
{
#pragma unroll
    for (int m = 0; m < 6; ++m) {
#pragma unroll
        for (int n = 0; n <= m; ++n) {
            double sum = matrix[m][n];
#pragma unroll
            for (int k = 0; k < n; ++k) {
                sum -= matrix[m][k] * matrix[n][k];
            }
            if (m == n) {
                if (!(sum > 0.0)) {
                    return false;
                }
                matrix[m][m] = sqrt(sum);
            } else {
                matrix[m][n] = sum / matrix[n][n];
            }
        }
    }
    return true;
}

__device__ inline void solve_cholesky(double (&matrix)[6][6], const double (&right)[6], double (&x)[6])
{
    factor_cholesky(matrix);
#pragma unroll
    for (int m = 0; m < 6; ++m) {
        double sum = right[m];
#pragma unroll
        for (int k = 0; k < m; ++k) {
            sum -= matrix[m][k] * x[k];
        }
        x[m] = sum / matrix[m][m];
    }
#pragma unroll
    for (int m = 5; m >= 0; --m) {
        double sum = x[m];
#pragma unroll
        for (int k = m + 1; k < 6; ++k) {
            sum -= matrix[k][m] * x[k];
        }
        x[m] = sum / matrix[m][m];
    }
}

// Diagonalise a symmetric matrix in place by Jacobi's rotations; eigenvectors are the columns of
// `vectors`. Converges quadratically: five sweeps reach float64, the bound is for broken input.
template <int size>
__device__ inline void diagonalise(double (&matrix)[size][size], double (&vectors)[size][size])
{
#pragma unroll(size <= 4 ? size : 1)
    for (int m = 0; m < size; ++m) {
#pragma unroll(size <= 4 ? size : 1)
        for (int n = 0; n < size; ++n) {
            vectors[m][n] = m == n ? 1.0 : 0.0;
        }
    }
    for (int sweep = 0; sweep < 12; ++sweep) {
        double off = 0.0, diagonal = 0.0;
#pragma unroll(size <= 4 ? size : 1)
        for (int p = 0; p < size; ++p) {
            diagonal += fabs(matrix[p][p]);
#pragma unroll(size <= 4 ? size : 1)
            for (int q = p + 1; q < size; ++q) {
                off = fmax(off, fabs(matrix[p][q]));
            }
        }
        if (off <= 1e-16 * diagonal) {
            return;
        }
#pragma unroll(size <= 4 ? size : 1)
        for (int p = 0; p < size - 1; ++p) {
#pragma unroll(size <= 4 ? size : 1)
            for (int q = p + 1; q < size; ++q) {
                if (matrix[p][q] == 0.0) {
                    continue;
                }
                const double slope = (matrix[q][q] - matrix[p][p]) / (2.0 * matrix[p][q]);
                const double tangent =
                    copysign(1.0 / (fabs(slope) + sqrt(1.0 + slope * slope)), slope);
                const double cosine = 1.0 / sqrt(1.0 + tangent * tangent);
                const double sine = tangent * cosine;
#pragma unroll(size <= 4 ? size : 1)
                for (int k = 0; k < size; ++k) {
                    const double left = matrix[k][p], right = matrix[k][q];
                    matrix[k][p] = cosine * left - sine * right;
                    matrix[k][q] = sine * left + cosine * right;
                }
#pragma unroll(size <= 4 ? size : 1)
                for (int k = 0; k < size; ++k) {
                    double left = matrix[p][k], right = matrix[q][k];
                    matrix[p][k] = cosine * left - sine * right;
                    matrix[q][k] = sine * left + cosine * right;
                    left = vectors[k][p], right = vectors[k][q];
                    vectors[k][p] = cosine * left - sine * right;
                    vectors[k][q] = sine * left + cosine * right;
                }
            }
        }
    }
}

// Whether no eigenvalue is below `share` of the largest, for certain.
__device__ inline bool is_well_conditioned(const double (&matrix)[6][6], double share)
{
    // The trace is not less than the largest eigenvalue: if the matrix stays positive definite less
    // share * trace, then no eigenvalue is small. Nearly always so, and ten times cheaper than they.
    double trace = 0.0;
    for (int m = 0; m < 6; ++m) {
        trace += matrix[m][m];
    }
    double shifted[6][6];
    for (int m = 0; m < 6; ++m) {
        for (int n = 0; n < 6; ++n) {
            shifted[m][n] = matrix[m][n] - (m == n ? share * trace : 0.0);
        }
    }
    return factor_cholesky(shifted);
}

__device__ inline double largest_of_diagonal(const double (&matrix)[6][6])
{
    double largest = matrix[0][0];
    for (int m = 1; m < 6; ++m) {
        largest = fmax(largest, matrix[m][m]);
    }
    return largest;
}

// Whether the smallest eigenvalue is below `share` of the largest. Destroys the matrix.
__device__ __noinline__ bool has_small_eigenvalue(double (&matrix)[6][6], double share)
{
    if (is_well_conditioned(matrix, share)) {
        return false;
    }
    double vectors[6][6];
    diagonalise(matrix, vectors);
    double smallest = matrix[0][0];
    for (int m = 1; m < 6; ++m) {
        smallest = fmin(smallest, matrix[m][m]);
    }
    return smallest < share * largest_of_diagonal(matrix);
}

// Solve for x in the directions whose eigenvalue is not below `share` of the largest; x has no part in
// the others. Destroys the matrix.
__device__ __noinline__ void solve_observed(
    double (&matrix)[6][6], double share, const double (&right)[6], double (&x)[6])
{
    if (is_well_conditioned(matrix, share)) {
        solve_cholesky(matrix, right, x);
        return;
    }
    double vectors[6][6];
    diagonalise(matrix, vectors);
    const double least = share * largest_of_diagonal(matrix);
    for (int m = 0; m < 6; ++m) {
        x[m] = 0.0;
    }
    for (int k = 0; k < 6; ++k) {
        if (matrix[k][k] > 0.0 && matrix[k][k] >= least) {
            double along = 0.0;
            for (int m = 0; m < 6; ++m) {
                along += vectors[m][k] * right[m];
            }
            for (int m = 0; m < 6; ++m) {
                x[m] += vectors[m][k] * along / matrix[k][k];
            }
        }
    }
}

// The pose that lays matched points onto each other, from their weighted sums (Horn, JOSA A 1987);
// a rotation even where a reflection fits better. Returns the mean square of the residuals.
__device__ __noinline__ double rigid_fit(
    double weight,
    const double* sum_p,
    const double* sum_m,
    const double* cross,    // of m p', row by row
    const double* second,   // of p p', upper triangle
    double square_m,
    double* pose)
{
    double p[3], m[3], c[3][3];
    double spread = (second[0] + second[3] + second[5] + square_m) / weight;
    for (int k = 0; k < 3; ++k) {
        p[k] = sum_p[k] / weight;
        m[k] = sum_m[k] / weight;
        spread -= p[k] * p[k] + m[k] * m[k];
    }
    for (int r = 0; r < 3; ++r) {
        for (int s = 0; s < 3; ++s) {
            c[r][s] = cross[3 * r + s] / weight - m[r] * p[s];
        }
    }
    // The unit quaternion (w x y z) that maximises q' N q.
    double n[4][4] = {
        {c[0][0] + c[1][1] + c[2][2], c[2][1] - c[1][2], c[0][2] - c[2][0], c[1][0] - c[0][1]},
        {c[2][1] - c[1][2], c[0][0] - c[1][1] - c[2][2], c[0][1] + c[1][0], c[0][2] + c[2][0]},
        {c[0][2] - c[2][0], c[0][1] + c[1][0], c[1][1] - c[0][0] - c[2][2], c[1][2] + c[2][1]},
        {c[1][0] - c[0][1], c[0][2] + c[2][0], c[1][2] + c[2][1], c[2][2] - c[0][0] - c[1][1]}};
    double vectors[4][4];
    diagonalise(n, vectors);
    double largest = n[0][0];
    double w = vectors[0][0], x = vectors[1][0], y = vectors[2][0], z = vectors[3][0];
#pragma unroll
    for (int k = 1; k < 4; ++k) {
        if (n[k][k] > largest) {
            largest = n[k][k];
            w = vectors[0][k], x = vectors[1][k], y = vectors[2][k], z = vectors[3][k];
        }
    }
    const double scale = 2.0 / (w * w + x * x + y * y + z * z);
    pose[0] = 1.0 - scale * (y * y + z * z);
    pose[1] = scale * (x * y - w * z);
    pose[2] = scale * (x * z + w * y);
    pose[4] = scale * (x * y + w * z);
    pose[5] = 1.0 - scale * (x * x + z * z);
    pose[6] = scale * (y * z - w * x);
    pose[8] = scale * (x * z - w * y);
    pose[9] = scale * (y * z + w * x);
    pose[10] = 1.0 - scale * (x * x + y * y);
    for (int k = 0; k < 3; ++k) {
        pose[4 * k + 3] =
            m[k] - pose[4 * k] * p[0] - pose[4 * k + 1] * p[1] - pose[4 * k + 2] * p[2];
    }
    return fmax(0.0, spread - 2.0 * largest);
}

// solve.py's hessian_of for point to point.
__device__ __noinline__ void point_hessian(
    const double* pose,
    double weight,
    const double* sum_p,
    const double* second,
    double (&hessian)[6][6])
{
    const double p[3][3] = {
        {second[0], second[1], second[2]},
        {second[1], second[3], second[4]},
        {second[2], second[4], second[5]}};
    double lever[3], moments[3][3];
    for (int r = 0; r < 3; ++r) {
        const double* row = pose + 4 * r;
        lever[r] = row[0] * sum_p[0] + row[1] * sum_p[1] + row[2] * sum_p[2];
        for (int s = 0; s < 3; ++s) {
            const double* other = pose + 4 * s;
            double sum = 0.0;
            for (int i = 0; i < 3; ++i) {
                for (int j = 0; j < 3; ++j) {
                    sum += row[i] * p[i][j] * other[j];
                }
            }
            moments[r][s] = sum;
        }
    }
    const double trace = moments[0][0] + moments[1][1] + moments[2][2];
    const double cross[3][3] = {
        {0.0, -lever[2], lever[1]}, {lever[2], 0.0, -lever[0]}, {-lever[1], lever[0], 0.0}};
    for (int r = 0; r < 3; ++r) {
        for (int s = 0; s < 3; ++s) {
            hessian[r][s] = r == s ? weight : 0.0;
            hessian[r][3 + s] = -cross[r][s];
            hessian[3 + r][s] = cross[r][s];
            hessian[3 + r][3 + s] = (r == s ? trace : 0.0) - moments[r][s];
        }
    }
}

// se3.py's perturbed: the pose (rows of (R | t)) moved by a step [translation, rotation].
__device__ __noinline__ void perturb(const double* pose, const double (&step)[6], double* moved)
{
    const double x = step[3], y = step[4], z = step[5];
    const double square = x * x + y * y + z * z;
    const double angle = sqrt(square);
    // sin(a) / a and (1 - cos(a)) / a^2; the series' next terms are of the order of a^4 = 1e-16.
    const double sine = angle < 1e-4 ? 1.0 - square / 6.0 : sin(angle) / angle;
    const double versine = angle < 1e-4 ? 0.5 - square / 24.0 : (1.0 - cos(angle)) / square;
    const double turn[3][3] = {
        {1.0 - versine * (y * y + z * z), versine * x * y - sine * z, versine * x * z + sine * y},
        {versine * x * y + sine * z, 1.0 - versine * (x * x + z * z), versine * y * z - sine * x},
        {versine * x * z - sine * y, versine * y * z + sine * x, 1.0 - versine * (x * x + y * y)}};
    double rows[3][3];
    for (int r = 0; r < 3; ++r) {
        for (int s = 0; s < 3; ++s) {
            rows[r][s] = turn[r][0] * pose[s] + turn[r][1] * pose[4 + s] + turn[r][2] * pose[8 + s];
        }
        moved[4 * r + 3] = pose[4 * r + 3] + step[r];
    }
    // Products have rounded: one step of Newton's iteration to the nearest rotation (Higham, 1986),
    // R (3 I - R'R) / 2, squares an error of 1e-16.
    double gram[3][3];
    for (int r = 0; r < 3; ++r) {
        for (int s = 0; s < 3; ++s) {
            gram[r][s] = rows[0][r] * rows[0][s] + rows[1][r] * rows[1][s] + rows[2][r] * rows[2][s];
        }
    }
    for (int r = 0; r < 3; ++r) {
        for (int s = 0; s < 3; ++s) {
            const double product =
                rows[r][0] * gram[0][s] + rows[r][1] * gram[1][s] + rows[r][2] * gram[2][s];
            moved[4 * r + s] = 1.5 * rows[r][s] - 0.5 * product;
        }
    }
}
