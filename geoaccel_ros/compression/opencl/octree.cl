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

#define NO_NODE 0xffffffffu
// How many ancestors in a row were only children, counted up to this.
#define LONGEST_CHAIN 3u

// The root. A state has the length of the chain in bits 0-1, and from bit 2 on the nearest beam.
kernel void begin_levels(global ulong *codes, global uint *neighbours, global ushort *states)
{
    codes[0] = 0;
    states[0] = 0;
    for (uint side = 0; side < 6; ++side)
        neighbours[side] = NO_NODE;
}

// The children of each of `count` nodes; the level's occupancy begins at first_node.
kernel void descend(global const ulong *codes, global const uint *neighbours, global const ushort *states,
                    uint count, global const uchar *occupancy, uint first_node, global const uint *first_child,
                    uint children, global uint *totals, uint level, global ulong *child_codes,
                    global uint *child_neighbours, global ushort *child_states)
{
    const uint i = get_global_id(0);
    if (i == 0)
        totals[level] = first_child[count];
    if (i >= count)
        return;
    occupancy += first_node;
    const uint byte = occupancy[i], first = first_child[i], chain = states[i] & 3;
    const ushort state = (states[i] & ~3u) | (byte & (byte - 1) ? 0 : min(chain + 1, LONGEST_CHAIN));
    const ulong prefix = codes[i] << 3;
    // The neighbours' children.
    uint near_bytes[6], near_first[6];
    for (uint side = 0; side < 6; ++side) {
        const uint near = neighbours[6 * i + side];
        near_bytes[side] = near < count ? occupancy[near] : 0;
        near_first[side] = near < count ? first_child[near] : 0;
    }
    uint position = first;
    for (uint left = byte; left && position < children; left &= left - 1, ++position) {
        const uint child = 31 - clz(left & -left);
        child_codes[position] = prefix | child;
        child_states[position] = state;
        for (uint axis = 0; axis < 3; ++axis) {
            const uint upper = child >> axis & 1, mirrored = child ^ 1u << axis, side = 2 * axis + upper;
            const uint before = (1u << mirrored) - 1;
            child_neighbours[6 * position + side] =
                near_bytes[side] >> mirrored & 1 ? near_first[side] + popcount(near_bytes[side] & before) : NO_NODE;
            child_neighbours[6 * position + (side ^ 1)] =
                byte >> mirrored & 1 ? first + popcount(byte & before) : NO_NODE;
        }
    }
}

// The same for the last level: nothing but the codes.
kernel void end_levels(global const ulong *codes, uint count, global const uchar *occupancy, uint first_node,
                       global const uint *first_child, uint children, global uint *totals, uint level,
                       global ulong *child_codes)
{
    const uint i = get_global_id(0);
    if (i == 0)
        totals[level] = first_child[count];
    if (i >= count)
        return;
    uint byte = occupancy[first_node + i], position = first_child[i];
    for (; byte && position < children; byte &= byte - 1, ++position)
        child_codes[position] = codes[i] << 3 | (31 - clz(byte & -byte));
}

// What code_node in nodes.cl goes by; `bits` levels are left below the nodes. Without beams (0) their arrays are
// not read.
kernel void describe_nodes(global const ulong *codes, global const uint *neighbours, global ushort *states,
                           uint count, uint bits, int origin_x, int origin_y, int origin_z,
                           global const int *slopes, global const int *heights, uint beams, uint bent,
                           global const int *tilts, global const int *offsets, global const int *shifts,
                           global ulong *descriptions)
{
    const uint i = get_global_id(0);
    if (i >= count)
        return;
    const ulong code = codes[i];
    ulong description = (ulong)(states[i] & 3) << 6 | (code & 7) << 8;
    for (uint side = 0; side < 6; ++side)
        description |= (ulong)(neighbours[6 * i + side] < count) << side;
    if (beams > 0) {
        // Cells are centred on multiples of the step: a node begins half a cell below its first.
        const int x = 2 * origin_x + ((2 * (int)collect(code) + 1) << bits) - 1;
        const int y = 2 * origin_y + ((2 * (int)collect(code >> 1) + 1) << bits) - 1;
        const int z = 2 * origin_z + ((2 * (int)collect(code >> 2) + 1) << bits) - 1;
        uint beam = states[i] >> 2;
        description |= (ulong)(beams > 1 ? RINGS : GROUND) << 60;
        description |= beams_of_node(x, y, z, bits + 1, slopes, heights, beams, bent, tilts, offsets, shifts, &beam)
                       << 12;
        states[i] = (states[i] & 3) | beam << 2;
    }
    // Without rings, the scale that matters is that of the cells.
    if (beams <= 1)
        description = (description & ~(15UL << 56)) | (ulong)min(bits - 1, 7u) << 56;
    descriptions[i] = description;
}
