// The rings of a spinning lidar: what they tell of a node's octants. Integers alone, or doubles that hold them
// exactly, so that every device codes the same bits. beams.py documents the model and the units.

#include "builtins.cl"

// What is known of the sensor; 0 is nothing.
#define RINGS 1
#define GROUND 2

// Twice the binary logarithm of a length, rounded down, from its square.
int half_octaves(ulong square)
{
    return 63 - (int)clz(square | 1);
}

#ifdef USE_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
// floor(sqrt(x x + y y)) for a sum below 2^50: all of it is exact in doubles.
uint length_of(int x, int y)
{
    return (uint)(int)sqrt((double)x * x + (double)y * y);
}

// Twice the binary logarithm of that, rounded down.
int half_octaves_of(int x, int y)
{
    return (int)(as_ulong(max((double)x * x + (double)y * y, 1.0)) >> 52) - 1023;
}
#else
uint length_of(int x, int y)
{
    const ulong square = (ulong)((long)x * x + (long)y * y);
    uint root = (uint)(int)sqrt((float)(long)square);
    // The estimate is off by a few.
    while ((ulong)root * root > square)
        --root;
    while ((ulong)(root + 1) * (root + 1) <= square)
        ++root;
    return root;
}

int half_octaves_of(int x, int y)
{
    return half_octaves((ulong)((long)x * x + (long)y * y));
}
#endif

// By how much to shift a number right, so that it has `bits` bits or less: divisions of 32 bits are quick.
uint excess_bits(uint v, uint bits)
{
    return (uint)max(32 - (int)bits - (int)clz(v), 0);
}

// Azimuth as quadrant and |y| / (|x| + |y|): 0 to below 4, in 1/4096.
uint diamond_angle(int x, int y)
{
    uint ax = abs(x), ay = abs(y);
    const uint shift = excess_bits(ax + ay, 20), sum = (ax + ay) >> shift;
    if (sum == 0)
        return 0;
    const uint part = (((x < 0) == (y < 0) ? ay : ax) >> shift << 12) / sum;
    const uint quadrant = y < 0 ? (x < 0 ? 2 : 3) : (x < 0 ? 1 : 0);
    return quadrant << 12 | min(part, 4095u);
}

// What the 17 knots, 1024 apart, give at an azimuth: between two of them linearly.
long at_azimuth(global const int *knots, uint azimuth)
{
    const uint knot = azimuth >> 10, part = azimuth & 1023;
    return knots[knot] + (((long)knots[knot + 1] - knots[knot]) * part >> 10);
}

// Height of beam i at a distance from it; all in 1/256 half cells.
long beam_height(global const int *slopes, global const int *heights, uint i, long distance)
{
    return (slopes[i] * distance >> 20) + heights[i];
}

uint biased(int v)
{
    return (uint)(clamp(v, -127, 127) + 128);
}

#define FAR_AWAY (1L << 20)


// A node's distance from where beams begin and its height there: what bends the beams, by the azimuth of its centre, in
// 1/256 half cells. Returns by how much they are steeper.
int bend(int x, int y, uint rho, global const int *tilts, global const int *offsets, global const int *shifts,
         long *distance, long *target)
{
    // Knots begin behind.
    const uint azimuth = diamond_angle(-x, -y);
    const long tilt = at_azimuth(tilts, azimuth);
    *target -= at_azimuth(offsets, azimuth) + (tilt * rho >> 12);
    *distance += at_azimuth(shifts, azimuth);
    return (int)tilt;
}

// Returns the beam that is nearest at a distance to a height, from that of the node's parent on; and how high it is
// above it, and those above and below it: LONG_MAX and LONG_MIN if there are none.
uint find_beam(long distance, long target, global const int *slopes, global const int *heights, uint beams, uint nearest,
               long *height_of_nearest, long *height_above, long *height_below)
{
    nearest = min(nearest, beams - 1);
    // Slopes ascend.
    long height = beam_height(slopes, heights, nearest, distance) - target, above = LONG_MAX, below = LONG_MIN;
    while (height < 0 && nearest + 1 < beams) {
        above = beam_height(slopes, heights, nearest + 1, distance) - target;
        if (above > -height)
            break;
        below = height;
        height = above;
        above = LONG_MAX;
        ++nearest;
    }
    while (height > 0 && nearest > 0) {
        below = beam_height(slopes, heights, nearest - 1, distance) - target;
        if (-below > height)
            break;
        above = height;
        height = below;
        below = LONG_MIN;
        --nearest;
    }
    if (above == LONG_MAX && nearest + 1 < beams)
        above = beam_height(slopes, heights, nearest + 1, distance) - target;
    if (below == LONG_MIN && nearest > 0)
        below = beam_height(slopes, heights, nearest - 1, distance) - target;
    *height_of_nearest = height;
    *height_above = above;
    *height_below = below;
    return nearest;
}

// What code_node wants to know of the beams around a node's centre, whose edge is 2^size_bits half cells; lengths are
// in 1/64 of the edge:
// bits 0-7 height of the nearest beam above the centre, 8-15 and 16-23 how far the beams above and below it are,
// 24-31 and 32-39 how much it rises over a quarter edge along x and y; all but the gaps biased by 128;
// 40-41 steepness, 42-43 beams that pass through, or how near the ground is, 44-47 the angle at which the sensor
// sees the edge, in half octaves.
INLINE ulong beams_of_node(int x, int y, uint rho, int slope, long nearest, long above, long below, uint size_bits,
                           uint beams)
{
    const uint shift = size_bits + 2;
    const int gap_above = above == LONG_MAX ? 255 : (int)clamp((above - nearest) >> shift, 0L, 255L);
    const int gap_below = below == LONG_MIN ? 255 : (int)clamp((nearest - below) >> shift, 0L, 255L);
    // Further away, all heights are one.
    const int height = (int)clamp(nearest >> shift, -FAR_AWAY, FAR_AWAY);
    // A quarter edge is 16 units. The reciprocal of rho has 16 bits, cosine and sine are in 1/1024.
    const uint shortened = excess_bits(rho, 16);
    const long reciprocal = 0xffffffffu / max(rho >> shortened, 1u);
    const int cosine = (int)((x >> shortened) * reciprocal >> 22), sine = (int)((y >> shortened) * reciprocal >> 22);
    const int rise_x = (int)((long)slope * cosine >> 26), rise_y = (int)((long)slope * sine >> 26);
    uint passing;
    if (beams > 1) {
        const int reach = 32 + abs(rise_x) + abs(rise_y);
        passing = (abs(height) < reach) + (gap_above < 255 && abs(height + gap_above) < reach) +
                  (gap_below < 255 && abs(height - gap_below) < reach);
    } else
        passing = abs(height) < 16 ? 3 : abs(height) < 32 ? 2 : abs(height) < 64 ? 1 : 0;
    const uint steepness = min((uint)abs(slope) >> 17, 3u);
    const uint low = biased(height) | (uint)gap_above << 8 | (uint)gap_below << 16 | biased(rise_x) << 24;
    const uint high = biased(rise_y) | steepness << 8 | passing << 10 |
                      (uint)clamp(22 + 2 * (int)size_bits - half_octaves_of(x, y), 0, 15) << 12;
    return low | (ulong)high << 32;
}
