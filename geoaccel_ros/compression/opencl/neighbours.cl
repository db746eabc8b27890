// The nearest of the points just before each one in the coding order, and how much each of them counts.
//
// Positions are three planes, x, y and z, of WINDOW places that are not looked at and then a number below 2^21
// for each point, their count filled up to a multiple of 8. Neighbours are NEIGHBOURS planes of a number for each
// point, the nearest first: how far back it is in the order (6 bits; 0: there is none) | weight << 6 (8 bits)
// | near << 14. Weights are of 128. The nearest's word alone tells near, how near that is, 0 to 2.
//
// Distances are sums over the axes, in cells; of points as far the later one is nearer. A point's neighbours are
// of its own chunk. Those that are four times as far away as the nearest, or more, are none.
#include "builtins.cl"
#include "window.cl"

// In steps of half an octave of 1 + distance.
#define FURTHEST_CLASS 4
#define NO_KEY 0xffffffffu

#ifdef TILE_IN_GLOBAL_MEMORY
#define TILE global
#else
#define TILE local
#endif

// Positions of `count` points from the cells of a cloud (all x, then all y, then all z), of which cells[order[i]] is the
// i-th; those from `placed` on are at cell 0.
kernel void place_cells(global const int *cells, global const uint *order, uint placed, uint count, int lowest_x,
                        int lowest_y, int lowest_z, uint position_stride, uint window, global int *positions)
{
    const uint i = get_global_id(0);
    if (i >= count)
        return;
    int x = 0, y = 0, z = 0;
    if (i < placed) {
        const ulong at = order[i];
        x = cells[at];
        y = cells[placed + at];
        z = cells[2 * (ulong)placed + at];
    }
    positions[window + i] = x - lowest_x;
    positions[(ulong)position_stride + window + i] = y - lowest_y;
    positions[2 * (ulong)position_stride + window + i] = z - lowest_z;
}

#ifdef POCL_DEVICE_ADDRESS_BITS
// vload8 is a call too.
typedef int8 int8_anywhere __attribute__((aligned(4)));
#define EIGHT_AT(place) (*(TILE const int8_anywhere *)(place))
#else
#define EIGHT_AT(place) vload8(0, place)
#endif

// The keys, distance << 6 | offset, of the neighbours of eight points, whose first has `before` points before it
// in its chunk.
void search(TILE const int *x, TILE const int *y, TILE const int *z, uint before, uint8 *nearest)
{
    const int8 own_x = EIGHT_AT(x), own_y = EIGHT_AT(y), own_z = EIGHT_AT(z);
    const uint8 places = (uint8)(0, 1, 2, 3, 4, 5, 6, 7) + before;
#pragma unroll
    for (uint k = 0; k < NEIGHBOURS; ++k)
        nearest[k] = (uint8)NO_KEY;
    for (uint offset = 1; offset <= WINDOW; ++offset) {
        const int8 other_x = EIGHT_AT(x - offset), other_y = EIGHT_AT(y - offset), other_z = EIGHT_AT(z - offset);
        const int8 dx = own_x - other_x, dy = own_y - other_y, dz = own_z - other_z;
        const int8 distance = (dx ^ dx >> 31) - (dx >> 31) + (dy ^ dy >> 31) - (dy >> 31) + (dz ^ dz >> 31) - (dz >> 31);
        uint8 key = as_uint8(distance << 6 | (int8)(int)offset);
        if (before < offset)
            key = select(key, (uint8)NO_KEY, places < (uint8)offset);
#pragma unroll
        for (uint k = 0; k < NEIGHBOURS; ++k) {
            const int8 is_closer = key < nearest[k];
            const uint8 closer = is_closer ? key : nearest[k];
            key = is_closer ? nearest[k] : key;
            nearest[k] = closer;
        }
    }
}

// Half octaves of 1 + distance: exponent and first bit of the float, which holds numbers of 23 bits as they are.
uint8 class_of(uint8 key)
{
    return as_uint8(convert_float8(convert_int8(key >> 6) + 1)) >> 22;
}

void weigh(const uint8 *nearest, uint stride, global ushort *neighbours)
{
    const uint8 first = class_of(nearest[0]);
    uint8 weights[NEIGHBOURS], sum = (uint8)0;
    for (uint k = 0; k < NEIGHBOURS; ++k) {
        const uint8 further = class_of(nearest[k]) - first;
        // 128 / sqrt(2)^further.
        const uint8 weight = select((uint8)128, (uint8)91, (further & 1) == 1) >> (further >> 1);
        const uint8 none = as_uint8(further > (uint8)FURTHEST_CLASS || nearest[k] == (uint8)NO_KEY);
        weights[k] = weight & ~none;
        sum += weights[k];
    }
    // Of points without neighbours all weights are 0.
    const uint8 scale = 16384 / max(sum, (uint8)1);
    const uint8 distance = nearest[0] >> 6;
    const uint8 near = (as_uint8(distance < (uint8)NEAR) & 1) + (as_uint8(distance < (uint8)VERY_NEAR) & 1);
    for (uint k = 0; k < NEIGHBOURS; ++k) {
        const uint8 some = as_uint8(weights[k] > (uint8)0);
        uint8 word = ((nearest[k] & 63) | weights[k] * scale >> 7 << 6) & some;
        if (k == 0)
            word |= near << 14;
        vstore8(convert_ushort8(word), 0, neighbours + (ulong)k * stride);
    }
}

// A work-group takes a tile of points, of a multiple of 8 that divides the chunk; each work-item takes eights.
kernel void find_neighbours(global const int *positions, uint position_stride, uint stride, uint tile,
                            global ushort *neighbours
#ifndef TILE_IN_GLOBAL_MEMORY
                            , local int *memory
#endif
                            )
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    const uint begin = get_group_id(0) * tile;
    if (begin >= stride)
        return;
    const uint size = min(tile, stride - begin);
#ifdef TILE_IN_GLOBAL_MEMORY
    global const int *x = positions + begin + WINDOW;
    const uint plane = position_stride;
#else
    // The points of the window before the tile's are in it too.
    const uint plane = tile + WINDOW;
    for (uint axis = 0; axis < 3; ++axis)
        for (uint i = lane; i < size + WINDOW; i += lanes)
            memory[axis * plane + i] = positions[(ulong)axis * position_stride + begin + i];
    barrier(CLK_LOCAL_MEM_FENCE);
    local const int *x = memory + WINDOW;
#endif
    uint8 nearest[NEIGHBOURS];
    for (uint i = 8 * lane; i < size; i += 8 * lanes) {
        search(x + i, x + plane + i, x + 2 * (ulong)plane + i, (begin + i) % CHUNK, nearest);
        weigh(nearest, stride, neighbours + begin + i);
    }
}
