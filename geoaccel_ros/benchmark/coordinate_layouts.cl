// Morton codes of float coordinates in any arrangement; float32 alone, unlike the codec's cells.
#include "morton.cl"

uint cell_of(float coordinate, float lowest, float cells_per_metre)
{
    return (uint)((coordinate - lowest) * cells_per_metre);
}

// Coordinate `axis` of point i is xyz[i * point_stride + axis * axis_stride].
kernel void codes_of(global const float *xyz, uint count, uint point_stride, uint axis_stride,
                     float lowest_x, float lowest_y, float lowest_z, float cells_per_metre, global ulong *codes)
{
    const size_t i = get_global_id(0);
    if (i >= count)
        return;
    global const float *p = xyz + i * point_stride;
    codes[i] = morton_code(cell_of(p[0], lowest_x, cells_per_metre),
                           cell_of(p[axis_stride], lowest_y, cells_per_metre),
                           cell_of(p[2 * axis_stride], lowest_z, cells_per_metre));
}
