// The rings of a spinning lidar: what they tell of a node's octants. Integers alone, so that every device codes
// the same bits. beams.py documents the model and the units.

#define KNOTS_PER_QUADRANT 4
#define KNOTS (4 * KNOTS_PER_QUADRANT + 1)

// floor(sqrt(v)) for v < 2^50: the estimate is off by a few, the loops make it exact.
uint integer_root(ulong v)
{
    uint root = (uint)sqrt((float)v);
    while ((ulong)root * root > v)
        --root;
    while ((ulong)(root + 1) * (root + 1) <= v)
        ++root;
    return root;
}

// Azimuth as quadrant and |y| / (|x| + |y|): 0 to below 4, in 1/4096.
uint diamond_angle(int x, int y)
{
    const uint ax = abs(x), ay = abs(y);
    if (ax + ay == 0)
        return 0;
    const uint part = (uint)(((ulong)(x < 0 == y < 0 ? ay : ax) << 12) / ((ulong)ax + ay));
    const uint quadrant = y < 0 ? (x < 0 ? 2 : 3) : (x < 0 ? 1 : 0);
    return quadrant << 12 | min(part, 4095u);
}

// What knots (KNOTS,) give at an azimuth, between two of them linearly.
long at_azimuth(global const int *knots, uint azimuth)
{
    const uint spacing = 4096 / KNOTS_PER_QUADRANT, knot = azimuth / spacing, part = azimuth % spacing;
    return ((long)knots[knot] * (spacing - part) + (long)knots[knot + 1] * part) / spacing;
}

// Height of beam i at a distance of rho half cells: in 1/256 half cells.
long beam_height(global const int *slopes, global const int *heights, uint i, long tilt, long rho)
{
    return ((slopes[i] + tilt) * rho >> 12) + heights[i];
}

uint biased(long v)
{
    return (uint)(clamp(v, -127L, 127L) + 128);
}

// What code_node wants to know of the beams around a node's centre (x, y, z in half cells of the sensor's frame), 
// whose edge is 2^size_bits half cells; lengths are in 1/64 of the edge:
// bits 0-7 height of the nearest beam above the centre, 8-15 and 16-23 how far the beams above and below it are,
// 24-31 and 32-39 how much it rises over a quarter edge along x and y; all but the gaps biased by 128;
// 40-41 steepness, 42-43 beams that pass through.
ulong beams_of_node(int x, int y, int z, uint size_bits, global const int *slopes, global const int *heights,
                    uint beams, global const int *tilts, global const int *offsets)
{
    const long rho = integer_root((ulong)((long)x * x + (long)y * y));
    const uint azimuth = diamond_angle(x, y);
    const long tilt = at_azimuth(tilts, azimuth);
    const long target = ((long)z << 8) - at_azimuth(offsets, azimuth);
    // The first beam that is not below the centre; slopes ascend.
    uint low = 0, high = beams;
    while (low < high) {
        const uint middle = (low + high) / 2;
        if (beam_height(slopes, heights, middle, tilt, rho) < target)
            low = middle + 1;
        else
            high = middle;
    }
    const uint shift = size_bits + 2;
    long above = 255, below = 255, height;
    uint nearest = min(low, beams - 1);
    height = beam_height(slopes, heights, nearest, tilt, rho) - target;
    if (low > 0 && low < beams) {
        const long lower = beam_height(slopes, heights, low - 1, tilt, rho) - target;
        if (-lower < height) {
            nearest = low - 1;
            height = lower;
        }
    }
    if (nearest + 1 < beams)
        above = clamp((beam_height(slopes, heights, nearest + 1, tilt, rho) - target - height) >> shift, 0L, 255L);
    if (nearest > 0)
        below = clamp((height + target - beam_height(slopes, heights, nearest - 1, tilt, rho)) >> shift, 0L, 255L);
    height >>= shift;
    // A quarter edge is 16 units; cosine and sine in 1/1024.
    const long slope = slopes[nearest] + tilt;
    long rise_x = 0, rise_y = 0;
    if (rho > 0) {
        const long inverse = (1L << 40) / rho;
        rise_x = slope * (x * inverse >> 30) >> 26;
        rise_y = slope * (y * inverse >> 30) >> 26;
    }
    const long reach = 32 + abs(rise_x) + abs(rise_y);
    const uint passing = (abs(height) < reach) + (abs(height + above) < reach) + (abs(height - below) < reach);
    const ulong steepness = min(abs(slope) >> 17, 3UL);
    return biased(height) | (ulong)above << 8 | (ulong)below << 16 | (ulong)biased(rise_x) << 24 |
           (ulong)biased(rise_y) << 32 | steepness << 40 | (ulong)passing << 42;
}
