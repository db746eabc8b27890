// The octree's levels from sorted Morton codes, leaves first: count, prefix sum, scatter; no atomics.
//
// Level l holds level_sizes[l] nodes; a node's code is its Morton prefix of 3 l bits. The host writes the number
// of leaves to level_sizes[depth]; the sizes of the levels above never leave the device until all are done, so
// the launches of all levels are queued without waiting. Occupancy bytes fill their buffer from its end, so that
// the root's byte comes first: level l begins at level_starts[l].
//
// A work-item takes a run of consecutive nodes. Bit d of a node's occupancy byte says that child d exists.
#include "beams.cl"
#include "morton.cl"

// The nodes [*begin, *end) of work-item `item` of `items`.
void run_of_item(uint size, uint item, uint items, uint *begin, uint *end)
{
    const uint length = (size + items - 1) / items;
    *begin = min(item * length, size);
    *end = min(*begin + length, size);
}

bool is_first_child(global const ulong *codes, uint i)
{
    return i == 0 || codes[i] >> 3 != codes[i - 1] >> 3;
}

// How many parents begin in each work-item's run of children.
kernel void count_parents(global const ulong *codes, global const uint *level_sizes, uint level, uint items,
                          global uint *counts)
{
    const uint item = get_global_id(0);
    if (item >= items)
        return;
    uint begin, end, count = 0;
    run_of_item(level_sizes[level + 1], item, items, &begin, &end);
    for (uint i = begin; i < end; ++i)
        count += is_first_child(codes, i);
    counts[item] = count;
}

// Exclusive prefix sum of counts, in place, by a single work-group; also the level's size and start.
kernel void scan_counts(global uint *counts, uint items, uint level, global uint *level_sizes,
                        global uint *level_starts, local uint *sums)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    uint begin, end, sum = 0;
    run_of_item(items, lane, lanes, &begin, &end);
    for (uint i = begin; i < end; ++i)
        sum += counts[i];
    sums[lane] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    // Hillis and Steele, 1986: after the round of stride s a lane holds the sum of 2 s lanes up to itself.
    for (uint stride = 1; stride < lanes; stride *= 2) {
        const uint below = lane >= stride ? sums[lane - stride] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[lane] += below;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    uint offset = sums[lane] - sum;
    for (uint i = begin; i < end; ++i) {
        const uint count = counts[i];
        counts[i] = offset;
        offset += count;
    }
    if (lane == lanes - 1) {
        level_sizes[level] = sums[lane];
        level_starts[level] = level_starts[level + 1] - sums[lane];
    }
}

// The parents' codes and occupancy bytes; an item finishes the parents that begin in its run.
kernel void scatter_parents(global const ulong *codes, global const uint *level_sizes,
                            global const uint *level_starts, uint level, uint items,
                            global const uint *offsets, global ulong *parents, global uchar *occupancy)
{
    const uint item = get_global_id(0);
    if (item >= items)
        return;
    const uint size = level_sizes[level + 1];
    uint begin, end;
    run_of_item(size, item, items, &begin, &end);
    uint i = begin, parent = offsets[item];
    while (i < end && !is_first_child(codes, i))
        ++i;
    while (i < end) {
        const ulong prefix = codes[i] >> 3;
        uchar byte = 0;
        for (; i < size && codes[i] >> 3 == prefix; ++i)
            byte |= (uchar)(1 << (codes[i] & 7));
        parents[parent] = prefix;
        occupancy[level_starts[level] + parent] = byte;
        ++parent;
    }
}

// From the root downwards, for coding: a level's nodes with what both sides know of them. A node's neighbours are
// found through its parent's, whose children are numbered by a prefix sum: no search. In a hostile stream the
// nodes of a level are not as many as stated: what would lie outside is left out.
//
// A place packs the x, y and z of a node in its level, 21 bits each. A state has the length of the chain in bits 0-1
// (how many ancestors in a row were only children, counted up to LONGEST_CHAIN), in 2-7 the sides on which there is a
// neighbour (-x +x -y +y -z +z), and from bit 8 on the nearest beam. Of the neighbours those that exist are written.
#define Y_AT 21
#define Z_AT 42
#define OF_AN_AXIS 0x1fffff
#define LONGEST_CHAIN 3u
#define SIDES_AT 2
#define BEAM_AT 8

// The root.
kernel void begin_levels(global ulong *places, global uint *states)
{
    places[0] = 0;
    states[0] = 0;
}

// The children of each of `count` nodes, with their neighbours if these are wanted; the level's occupancy begins at
// first_node.
kernel void descend(global const ulong *places, global const uint *neighbours, global const uint *states,
                    uint count, global const uchar *occupancy, uint first_node, global const uint *first_child,
                    uint children, global uint *totals, uint level, uint with_neighbours, global ulong *child_places,
                    global uint *child_neighbours, global uint *child_states)
{
    const uint i = get_global_id(0);
    if (i == 0)
        totals[level] = first_child[count];
    if (i >= count)
        return;
    occupancy += first_node;
    const uint byte = occupancy[i], first = first_child[i], state = states[i], sides = state >> SIDES_AT & 63;
    const uint chain = byte & (byte - 1) ? 0 : min((state & 3) + 1, LONGEST_CHAIN);
    const uint inherited = state >> BEAM_AT << BEAM_AT | chain;
    const ulong place = places[i] << 1;
    // The neighbours' children.
    uint near_bytes[6] = {0, 0, 0, 0, 0, 0}, near_first[6] = {0, 0, 0, 0, 0, 0};
    if (sides)
        // Of sides without one, too: which these are nobody can predict.
#pragma unroll
        for (uint side = 0; side < 6; ++side) {
            const uint near = neighbours[6 * i + side];
            const uint exists = (sides >> side & 1) & (near < count), at = exists ? near : i;
            near_bytes[side] = occupancy[at] & (0 - exists);
            near_first[side] = first_child[at];
        }
    // Bit d of byte `side`: child d has a neighbour there, a child of the node's neighbour or a sibling.
    const ulong beside =
        (ulong)((near_bytes[0] & 0xaa) >> 1 | (byte & 0x55) << 1 | (near_bytes[1] & 0x55) << 9 | (byte & 0xaa) << 7 |
                (near_bytes[2] & 0xcc) << 14 | (byte & 0x33) << 18 | (near_bytes[3] & 0x33) << 26 | (byte & 0xcc) << 22) |
        (ulong)((near_bytes[4] & 0xf0) >> 4 | (byte & 0x0f) << 4 | (near_bytes[5] & 0x0f) << 12 | (byte & 0xf0) << 4) << 32;
    uint position = first;
    for (uint left = byte; left && position < children; left &= left - 1, ++position) {
        const uint child = 31 - clz(left & -left);
        // The six bits side by side.
        const uint child_sides = (uint)((beside >> child & 0x010101010101UL) * 0x40810204080UL >> 42) & 63;
        child_places[position] = place | (child & 1) | (ulong)(child & 2) << (Y_AT - 1) | (ulong)(child & 4) << (Z_AT - 2);
        child_states[position] = inherited | child_sides << SIDES_AT;
        if (with_neighbours && child_sides)
#pragma unroll
            for (uint side = 0; side < 6; ++side) {
                const uint axis = side >> 1, before = (1u << (child ^ 1u << axis)) - 1;
                const bool is_outside = (child >> axis & 1) == (side & 1);
                child_neighbours[6 * position + side] = (is_outside ? near_first[side] : first) +
                                                        popcount((is_outside ? near_bytes[side] : byte) & before);
            }
    }
}

// The same for the last level: nothing but the Morton codes.
kernel void end_levels(global const ulong *places, uint count, global const uchar *occupancy, uint first_node,
                       global const uint *first_child, uint children, global uint *totals, uint level,
                       global ulong *child_codes)
{
    const uint i = get_global_id(0);
    if (i == 0)
        totals[level] = first_child[count];
    if (i >= count)
        return;
    const ulong place = places[i];
    const ulong code = morton_code(place & OF_AN_AXIS, place >> Y_AT & OF_AN_AXIS, place >> Z_AT) << 3;
    uint byte = occupancy[first_node + i], position = first_child[i];
    for (; byte && position < children; byte &= byte - 1, ++position)
        child_codes[position] = code | (31 - clz(byte & -byte));
}

// What code_node in nodes.cl goes by; `bits` levels are left below the nodes. Without beams (0) their arrays are
// not read. A work-item takes NODES_TOGETHER nodes: on a CPU many, one step after the other, as its compiler makes
// vectors of those steps that are the same for all.
#ifndef NODES_TOGETHER
#define NODES_TOGETHER 1
#endif

kernel void describe_nodes(global const ulong *places, global uint *states,
                           uint count, uint bits, int origin_x, int origin_y, int origin_z,
                           global const int *slopes, global const int *heights, uint beams, uint bent,
                           global const int *tilts, global const int *offsets, global const int *shifts,
                           global ulong *descriptions)
{
    const uint first = get_global_id(0) * NODES_TOGETHER;
    if (first >= count)
        return;
    const uint nodes = NODES_TOGETHER == 1 ? 1 : min(count - first, (uint)NODES_TOGETHER);
    places += first;
    states += first;
    descriptions += first;
    for (uint k = 0; k < nodes; ++k) {
        const uint state = states[k];
        const ulong place = places[k];
        ulong description = (state >> SIDES_AT & 63) | (state & 3) << 6 | ((uint)place & 1) << 8 |
                            ((uint)(place >> Y_AT) & 1) << 9 | ((uint)(place >> Z_AT) & 1) << 10;
        // Without rings, the scale that matters is that of the cells.
        if (beams <= 1)
            description |= (ulong)min(bits - 1, 7u) << 56;
        descriptions[k] = description;
    }
    if (beams == 0)
        return;
    int x[NODES_TOGETHER], y[NODES_TOGETHER], slope[NODES_TOGETHER];
    uint rho[NODES_TOGETHER];
    long distance[NODES_TOGETHER], target[NODES_TOGETHER];
    for (uint k = 0; k < nodes; ++k) {
        const ulong place = places[k];
        // Cells are centred on multiples of the step: a node begins half a cell below its first.
        x[k] = 2 * origin_x + ((2 * ((int)place & OF_AN_AXIS) + 1) << bits) - 1;
        y[k] = 2 * origin_y + ((2 * ((int)(place >> Y_AT) & OF_AN_AXIS) + 1) << bits) - 1;
        rho[k] = length_of(x[k], y[k]);
        // In 1/256 half cells.
        distance[k] = (long)rho[k] << 8;
        target[k] = (long)(2 * origin_z + ((2 * (int)(place >> Z_AT) + 1) << bits) - 1) << 8;
        slope[k] = 0;
    }
    if (bent)
        for (uint k = 0; k < nodes; ++k)
            slope[k] = bend(x[k], y[k], rho[k], tilts, offsets, shifts, &distance[k], &target[k]);
    long nearest[NODES_TOGETHER], above[NODES_TOGETHER], below[NODES_TOGETHER];
    for (uint k = 0; k < nodes; ++k) {
        const uint state = states[k];
        const uint beam = find_beam(distance[k], target[k], slopes, heights, beams, state >> BEAM_AT, &nearest[k],
                                    &above[k], &below[k]);
        states[k] = (state & ((1u << BEAM_AT) - 1)) | beam << BEAM_AT;
        slope[k] += slopes[beam];
    }
    const ulong sensor = (ulong)(beams > 1 ? RINGS : GROUND) << 60, told = beams > 1 ? ~0UL : (1UL << 44) - 1;
    for (uint k = 0; k < nodes; ++k)
        descriptions[k] |= sensor | (beams_of_node(x[k], y[k], rho[k], slope[k], nearest[k], above[k], below[k],
                                                   bits + 1, beams) & told) << 12;
}
