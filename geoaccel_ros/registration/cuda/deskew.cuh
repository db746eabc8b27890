// deskew.py on the device.

#pragma once

// `pose` exp(age `twist`) p in place of p, as deskew.py's move_along; `pose` has the rows of (R | t).
__device__ inline void move_along(
    const double* pose, const double* twist, double age, double& x, double& y, double& z)
{
    const double vx = age * twist[0], vy = age * twist[1], vz = age * twist[2];
    const double wx = age * twist[3], wy = age * twist[4], wz = age * twist[5];
    const double square = wx * wx + wy * wy + wz * wz;
    double sine, versine, cubic;
    if (square < 0.04) {
        sine = 1.0 - square / 6.0 * (1.0 - square / 20.0 * (1.0 - square / 42.0));
        versine = 0.5 - square / 24.0 * (1.0 - square / 30.0 * (1.0 - square / 56.0));
        cubic = 1.0 / 6.0 - square / 120.0 * (1.0 - square / 42.0);
    } else {
        const double angle = sqrt(square);
        sine = sin(angle) / angle;
        versine = (1.0 - cos(angle)) / square;
        cubic = (1.0 - sine) / square;
    }
    const double px = wy * z - wz * y, py = wz * x - wx * z, pz = wx * y - wy * x;
    const double cx = wy * vz - wz * vy, cy = wz * vx - wx * vz, cz = wx * vy - wy * vx;
    const double a = x + sine * px + versine * (wy * pz - wz * py) + vx + versine * cx +
                     cubic * (wy * cz - wz * cy);
    const double b = y + sine * py + versine * (wz * px - wx * pz) + vy + versine * cy +
                     cubic * (wz * cx - wx * cz);
    const double c = z + sine * pz + versine * (wx * py - wy * px) + vz + versine * cz +
                     cubic * (wx * cy - wy * cx);
    x = pose[0] * a + pose[1] * b + pose[2] * c + pose[3];
    y = pose[4] * a + pose[5] * b + pose[6] * c + pose[7];
    z = pose[8] * a + pose[9] * b + pose[10] * c + pose[11];
}
