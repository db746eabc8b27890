// Morton codes of grid cells: bit 3k of a code is bit k of x, 3k + 1 of y, 3k + 2 of z; 21 bits an axis.
#include "builtins.cl"

// Move bit k of a 21-bit number to bit 3k.
ulong spread(ulong v)
{
    v = (v | v << 32) & 0x001f00000000ffffUL;
    v = (v | v << 16) & 0x001f0000ff0000ffUL;
    v = (v | v << 8) & 0x100f00f00f00f00fUL;
    v = (v | v << 4) & 0x10c30c30c30c30c3UL;
    v = (v | v << 2) & 0x1249249249249249UL;
    return v;
}

// The inverse: bit 3k to bit k.
uint collect(ulong v)
{
    v &= 0x1249249249249249UL;
    v = (v | v >> 2) & 0x10c30c30c30c30c3UL;
    v = (v | v >> 4) & 0x100f00f00f00f00fUL;
    v = (v | v >> 8) & 0x001f0000ff0000ffUL;
    v = (v | v >> 16) & 0x001f00000000ffffUL;
    v = (v | v >> 32) & 0x00000000001fffffUL;
    return (uint)v;
}

ulong morton_code(ulong x, ulong y, ulong z)
{
    return spread(x) | spread(y) << 1 | spread(z) << 2;
}

// cells: all x, then all y, then all z, relative to the cloud's lowest cell.
kernel void interleave(global const uint *cells, uint count, global ulong *codes)
{
    const size_t i = get_global_id(0);
    if (i < count)
        codes[i] = morton_code(cells[i], cells[count + i], cells[2 * count + i]);
}

// The inverse, in the same arrangement.
kernel void deinterleave(global const ulong *codes, uint count, global uint *cells)
{
    const size_t i = get_global_id(0);
    if (i >= count)
        return;
    const ulong code = codes[i];
    cells[i] = collect(code);
    cells[count + i] = collect(code >> 1);
    cells[2 * count + i] = collect(code >> 2);
}

// The positions of points as neighbours.cl takes them: of cell i those from starts[i] to starts[i + 1], or if there
// is `one` in each cell, point i. Planes begin with `window` places that are no point's.
kernel void place_codes(global const ulong *codes, uint count, uint one, global const uint *starts, uint stride,
                        uint window, global int *planes)
{
    const uint i = get_global_id(0);
    if (i >= count)
        return;
    const ulong code = codes[i];
    const int x = collect(code), y = collect(code >> 1), z = collect(code >> 2);
    const uint end = window + (one ? i + 1 : starts[i + 1]);
    for (uint j = window + (one ? i : starts[i]); j < end; ++j) {
        planes[j] = x;
        planes[stride + j] = y;
        planes[2 * (ulong)stride + j] = z;
    }
}

// Some of these positions: all x, then all y, then all z.
kernel void gather_positions(global const int *planes, uint stride, uint window, global const uint *wanted, uint count,
                             global int *gathered)
{
    const uint i = get_global_id(0);
    if (i >= count)
        return;
    for (uint axis = 0; axis < 3; ++axis)
        gathered[axis * (ulong)count + i] = planes[axis * (ulong)stride + window + wanted[i]];
}

#ifdef USE_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

// OpenCL rounds a division of doubles correctly, so these are the cells that NumPy computes.
ulong cell(double coordinate, double step, long origin)
{
    return (ulong)((long)rint(coordinate / step) - origin);
}

kernel void codes_of_float32(global const float *xyz, uint count, double step,
                             long origin_x, long origin_y, long origin_z, global ulong *codes)
{
    const size_t i = get_global_id(0);
    if (i < count)
        codes[i] = morton_code(cell(xyz[i], step, origin_x), cell(xyz[count + i], step, origin_y),
                               cell(xyz[2 * count + i], step, origin_z));
}

kernel void codes_of_float64(global const double *xyz, uint count, double step,
                             long origin_x, long origin_y, long origin_z, global ulong *codes)
{
    const size_t i = get_global_id(0);
    if (i < count)
        codes[i] = morton_code(cell(xyz[i], step, origin_x), cell(xyz[count + i], step, origin_y),
                               cell(xyz[2 * count + i], step, origin_z));
}

// Decoding: the centres of cells. A product of doubles and its rounding to a float are exact in OpenCL as they are in
// NumPy. Cell i has the points from starts[i] to starts[i + 1], or if there is `one` in each cell, point i. A point
// takes `stride` numbers, of which the at_x-th is its x, and so on.
double centre(ulong bits, double step, long origin)
{
    return step * (double)(origin + collect(bits));
}

kernel void centres_as_float32(global const ulong *codes, uint count, double step,
                               long origin_x, long origin_y, long origin_z,
                               uint one, global const uint *starts,
                               uint stride, uint at_x, uint at_y, uint at_z, global float *points)
{
    const uint i = get_global_id(0);
    if (i >= count)
        return;
    const float x = convert_float_rte(centre(codes[i], step, origin_x)),
                y = convert_float_rte(centre(codes[i] >> 1, step, origin_y)),
                z = convert_float_rte(centre(codes[i] >> 2, step, origin_z));
    const uint end = one ? i + 1 : starts[i + 1];
    for (uint j = one ? i : starts[i]; j < end; ++j) {
        global float *point = points + (ulong)j * stride;
        point[at_x] = x;
        point[at_y] = y;
        point[at_z] = z;
    }
}

kernel void centres_as_float64(global const ulong *codes, uint count, double step,
                               long origin_x, long origin_y, long origin_z,
                               uint one, global const uint *starts,
                               uint stride, uint at_x, uint at_y, uint at_z, global double *points)
{
    const uint i = get_global_id(0);
    if (i >= count)
        return;
    const double x = centre(codes[i], step, origin_x), y = centre(codes[i] >> 1, step, origin_y),
                 z = centre(codes[i] >> 2, step, origin_z);
    const uint end = one ? i + 1 : starts[i + 1];
    for (uint j = one ? i : starts[i]; j < end; ++j) {
        global double *point = points + (ulong)j * stride;
        point[at_x] = x;
        point[at_y] = y;
        point[at_z] = z;
    }
}
#endif
