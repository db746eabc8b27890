// The rings of a spinning lidar: what they tell of a node's octants. Integers alone, so that every device codes
// the same bits. beams.py documents the model and the units.

// What is known of the sensor; 0 is nothing.
#define RINGS 1
#define GROUND 2

// To PoCL these are calls, and a node needs a dozen. Their arguments have no side effects.
#undef min
#undef max
#undef clamp
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define clamp(v, low, high) ((v) < (low) ? (low) : (v) > (high) ? (high) : (v))

// floor(sqrt(v)) for v < 2^50: the estimate is off by a few, the loops make it exact.
uint integer_root(ulong v)
{
    uint root = (uint)(int)sqrt((float)(long)v);
    while ((ulong)root * root > v)
        --root;
    while ((ulong)(root + 1) * (root + 1) <= v)
        ++root;
    return root;
}

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

// Twice the binary logarithm of a length, rounded down, from its square.
int half_octaves(ulong square)
{
    return 63 - (int)clz(square | 1);
}

uint biased(long v)
{
    return (uint)(clamp(v, -127L, 127L) + 128);
}

// What code_node wants to know of the beams around a node's centre (x, y, z in half cells of the sensor's frame),
// whose edge is 2^size_bits half cells; lengths are in 1/64 of the edge:
// bits 0-7 height of the nearest beam above the centre, 8-15 and 16-23 how far the beams above and below it are,
// 24-31 and 32-39 how much it rises over a quarter edge along x and y; all but the gaps biased by 128;
// 40-41 steepness, 42-43 beams that pass through, or how near the ground is, 44-47 the angle at which the sensor
// sees the edge, in half octaves.
// *hint is the beam at the parent's centre, where the search begins; it becomes the node's.
ulong beams_of_node(int x, int y, int z, uint size_bits, global const int *slopes, global const int *heights,
                    uint beams, uint bent, global const int *tilts, global const int *offsets,
                    global const int *shifts, uint *hint)
{
    const ulong square = (ulong)((long)x * x + (long)y * y);
    const uint rho = integer_root(square);
    long tilt = 0, target = (long)z << 8, distance = (long)rho << 8;
    if (bent) {
        // Knots begin behind.
        const uint azimuth = diamond_angle(-x, -y);
        tilt = at_azimuth(tilts, azimuth);
        target -= at_azimuth(offsets, azimuth) + (tilt * rho >> 12);
        distance += at_azimuth(shifts, azimuth);
    }
    // Heights above the centre; slopes ascend.
    uint nearest = min(*hint, beams - 1);
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
    *hint = nearest;
    if (above == LONG_MAX && nearest + 1 < beams)
        above = beam_height(slopes, heights, nearest + 1, distance) - target;
    if (below == LONG_MIN && nearest > 0)
        below = beam_height(slopes, heights, nearest - 1, distance) - target;
    const uint shift = size_bits + 2;
    const long gap_above = above == LONG_MAX ? 255 : clamp((above - height) >> shift, 0L, 255L);
    const long gap_below = below == LONG_MIN ? 255 : clamp((height - below) >> shift, 0L, 255L);
    height >>= shift;
    // A quarter edge is 16 units. The reciprocal of rho has 16 bits, cosine and sine are in 1/1024.
    const long slope = slopes[nearest] + tilt;
    const uint shortened = excess_bits(rho, 16);
    const long reciprocal = 0xffffffffu / max(rho >> shortened, 1u);
    const long rise_x = slope * (((x >> shortened) * reciprocal) >> 22) >> 26;
    const long rise_y = slope * (((y >> shortened) * reciprocal) >> 22) >> 26;
    uint passing;
    if (beams > 1) {
        const ulong reach = 32 + abs(rise_x) + abs(rise_y);
        passing = (abs(height) < reach) + (gap_above < 255 && abs(height + gap_above) < reach) +
                  (gap_below < 255 && abs(height - gap_below) < reach);
    } else
        passing = abs(height) < 16 ? 3 : abs(height) < 32 ? 2 : abs(height) < 64 ? 1 : 0;
    const ulong steepness = min(abs(slope) >> 17, 3UL);
    return biased(height) | (ulong)gap_above << 8 | (ulong)gap_below << 16 | (ulong)biased(rise_x) << 24 |
           (ulong)biased(rise_y) << 32 | steepness << 40 | (ulong)passing << 42 |
           (ulong)clamp(22 + 2 * (int)size_bits - half_octaves(square), 0, 15) << 44;
}
