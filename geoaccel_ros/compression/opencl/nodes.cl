// Coding of the octree's nodes, a chunk of a level by each work-item: the model of occupancy.
#include "beams.cl"
#include "integers.cl"
#include "morton.cl"

// Contexts of the occupancy table: flag, the bits of an only child along x, y and z, then children one by one.
#define ONLY_CHILD 1
#define ONLY_X (ONLY_CHILD + 16 * 4 * 7 * 5)
#define ONLY_Y (ONLY_X + 4 * 4 * 2 * 4)
#define ONLY_Z (ONLY_Y + 4 * 4 * 2 * 4 * 3)
#define CHILDREN (ONLY_Z + (1 + 33 * 4) * 4 * 4)
#define OCCUPANCY_CONTEXTS (CHILDREN + 8 * 27 * 3 * 32)

#define EVENTS_PER_NODE 9
#define EVENTS_OF_ONLY_CHILD 4

// A node's description, as describe_nodes in octree.cl makes it: bits 0-5 face neighbours (-x +x -y +y -z +z),
// 6-7 how many ancestors in a row were only children, 8-10 the node's place in its parent, 12-55 what
// beams_of_node tells, 56-59 the node's scale, 60-61 what is known of the sensor.
uint bits_of(ulong description, uint first, uint count)
{
    return (uint)(description >> first) & ((1u << count) - 1);
}

int signed_bits(ulong description, uint first)
{
    return (int)bits_of(description, first, 8) - 128;
}

// Signed distance of the nearest of three beams at a height, in 1/64 of the node's edge.
int nearest_beam(int height, int above, int below)
{
    int nearest = height;
    if (abs(height + above) < abs(nearest))
        nearest = height + above;
    if (abs(height - below) < abs(nearest))
        nearest = height - below;
    return nearest;
}

uint code_only_child(coder_t *coder, ulong description, uint level_class, uint child)
{
    const uint faces = bits_of(description, 0, 6), place = bits_of(description, 8, 3);
    const uint x_faces = faces & 3, y_faces = faces >> 2 & 3, z_faces = faces >> 4;
    uint context = ((x_faces * 4 + level_class) * 2 + (place & 1)) * 4 + min((uint)popcount(faces >> 2), 3u);
    const uint x = code_bit(coder, ONLY_X + context, child & 1);
    // Whether the child is on the side of the only neighbour along x.
    const uint towards = x_faces == 0 || x_faces == 3 ? 0 : (x_faces == 1) == (x == 0) ? 1 : 2;
    context = ((y_faces * 4 + level_class) * 2 + (place >> 1 & 1)) * 4 + min((uint)popcount(faces & 0x33), 3u);
    const uint y = code_bit(coder, ONLY_Y + context * 3 + towards, child >> 1 & 1);
    uint beam = 0;
    if (bits_of(description, 60, 2)) {
        const int rise_x = signed_bits(description, 36), rise_y = signed_bits(description, 44);
        const int height = signed_bits(description, 12) + (x ? rise_x : -rise_x) + (y ? rise_y : -rise_y);
        const int nearest = nearest_beam(height, bits_of(description, 20, 8), bits_of(description, 28, 8));
        beam = 1 + (uint)clamp((nearest + 66) >> 2, 0, 32) * 4 + bits_of(description, 52, 2);
    }
    context = (beam * 4 + z_faces) * 4 + level_class;
    return x | y << 1 | code_bit(coder, ONLY_Z + context, child >> 2) << 2;
}

int8 magnitude(int8 v)
{
    return (v ^ v >> 31) - (v >> 31);
}

// Of each child's context, what is known before any is coded: which of the node's neighbours touch it, and how far
// from its centre the nearest beam is.
uint8 contexts_of_children(ulong description)
{
    const int8 x = (int8)(0, 1, 0, 1, 0, 1, 0, 1), y = (int8)(0, 0, 1, 1, 0, 0, 1, 1), z = (int8)(0, 0, 0, 0, 1, 1, 1, 1);
    const int faces = bits_of(description, 0, 6);
    const uint sensor = bits_of(description, 60, 2), scale = bits_of(description, 56, 4);
    const int8 touching = ((int8)faces >> x & 1) * 4 + ((int8)(faces >> 2) >> y & 1) * 2 + ((int8)(faces >> 4) >> z & 1);
    uint8 place = (uint8)scale;
    if (sensor) {
        const int8 height = signed_bits(description, 12) + signed_bits(description, 36) * (2 * x - 1) +
                            signed_bits(description, 44) * (2 * y - 1) + 16 - 32 * z;
        const int8 by_middle = magnitude(height), by_upper = magnitude(height + (int)bits_of(description, 20, 8)),
                   by_lower = magnitude(height - (int)bits_of(description, 28, 8));
        int8 off = by_upper < by_middle ? by_upper : by_middle;
        off = by_lower < off ? by_lower : off;
        // Rings are thinner than the ground, which matters at more scales.
        // Steps of 5 and of 8.
        const int most = sensor == RINGS ? 35 : 24;
        off = (off < most ? off : (int8)most) * (sensor == RINGS ? 205 : 128) >> 10;
        place = as_uint8(off) + (sensor == RINGS ? (uint)clamp(((int)scale - 3) / 3, 0, 3) * 8 : scale * 4);
    }
    return CHILDREN + as_uint8(touching) * (27 * 3 * 32) + place;
}

// Two children or more, one after the other: their context is what touches them.
uint code_children(coder_t *coder, ulong description, uint occupancy)
{
    const uint8 contexts = contexts_of_children(description);
    const uint *known = (const uint *)&contexts;
    uint coded = 0, count = 0;
#pragma unroll
    for (uint child = 0; child < 8; ++child) {
        // What is left must hold the children that are missing from two.
        if (child == 6 + count)
            return coded | (0xff << child & 0xff);
        // Of each sibling that shares a face: not coded yet, empty, occupied.
        const uint beside_x = child & 1 ? 1 + (coded >> (child ^ 1) & 1) : 0;
        const uint beside_y = child & 2 ? 1 + (coded >> (child ^ 2) & 1) : 0;
        const uint beside_z = child & 4 ? 1 + (coded >> (child ^ 4) & 1) : 0;
        const uint siblings = (beside_x * 3 + beside_y) * 3 + beside_z;
        const uint context = known[child] + (siblings * 3 + min(count, 2u)) * 32;
        const uint bit = code_bit(coder, context, occupancy >> child & 1);
        coded |= bit << child;
        count += bit;
    }
    return coded;
}

// Returns the occupancy byte; `bits` levels are left below the node, 1 or more.
uint code_node(coder_t *coder, ulong description, uint bits, uint occupancy)
{
    const uint only = popcount(occupancy) == 1, faces = popcount(bits_of(description, 0, 6));
    const uint passing = bits_of(description, 60, 2) ? 1 + bits_of(description, 54, 2) : 0;
    const uint context = ((bits_of(description, 56, 4) * 4 + bits_of(description, 6, 2)) * 7 + faces) * 5 + passing;
    if (code_bit(coder, ONLY_CHILD + context, only))
        return 1u << code_only_child(coder, description, min(bits - 1, 3u), (31 - clz(occupancy | 1)) & 7);
    return code_children(coder, description, occupancy);
}

#ifdef COUNT
// How many events chunks have, whose nodes begin at node_starts, levels one behind the other.
kernel void count_nodes(global const uchar *occupancy, global const uint *node_starts, uint chunks, CODER)
{
    const uint chunk = get_global_id(0);
    if (chunk >= chunks)
        return;
    const uint begin = node_starts[chunk], end = node_starts[chunk + 1];
    uint events = 0;
    for (uint i = begin; i < end; ++i) {
        const uint byte = occupancy[i], before_last = byte & 0x7f;
        // What code_children need not ask for: the last two, or the last.
        const uint told = byte & 0x3f ? before_last & (before_last - 1) ? 0 : 1 : 2;
        events += byte & (byte - 1) ? EVENTS_PER_NODE - told : EVENTS_OF_ONLY_CHILD;
    }
    coder_counts[chunk] = events;
}
#else
// The nodes of a level that begins at first_node, `run` of a chunk by each work-item: when decoding all of it.
// Where work-items share a chunk, its events' room is that of EVENTS_PER_NODE each, and what is left becomes NO_EVENT.
kernel void code_nodes(global const ulong *descriptions, uint count, uint bits, uint chunk_nodes, uint run,
                       uint first_chunk, global uchar *occupancy, uint first_node, global uint *children, CODER)
{
    const uint begin = get_global_id(0) * run, end = min(begin + run, count);
    if (begin >= count)
        return;
    const uint chunk = begin / chunk_nodes;
    coder_t coder = OPEN_CODER(first_chunk + chunk);
#ifdef EMIT
    if (run < chunk_nodes) {
        coder.position += (begin - chunk * chunk_nodes) * EVENTS_PER_NODE;
        coder.end = coder.position + (end - begin) * EVENTS_PER_NODE;
    }
#endif
    for (uint i = begin; i < end; ++i) {
#ifdef DECODE
        const uint byte = code_node(&coder, descriptions[i], bits, 0);
        occupancy[first_node + i] = (uchar)byte;
#else
        const uint byte = code_node(&coder, descriptions[i], bits, occupancy[first_node + i]);
#endif
        children[i] = popcount(byte);
    }
#ifdef EMIT
    while (coder.position < coder.end)
        coder.events[coder.position++] = NO_EVENT;
#endif
    CLOSE_CODER(coder, first_chunk + chunk);
}
#endif

// Contexts of the multiplicity table: more than one point, by the distance from the sensor in half octaves, the
// cell before, and whether neighbours in the order of the codes share the parent; more than two, by the distance;
// then how many more.
#define REPEATED 1
#define REPEATED_AGAIN (REPEATED + 16 * 3 * 4)
#define REPEATS (REPEATED_AGAIN + 16)
#define MULTIPLICITY_CONTEXTS (REPEATS + INTEGER_CONTEXTS)

// If the sensor is not at the origin (located 0), all distances are one. `points` are where each cell's points begin
// and the last's end; decoding makes it the number of each cell's.
kernel void code_multiplicity(global const ulong *codes, uint count, uint located, int origin_x, int origin_y,
                              uint chunk_cells, uint chunks, global uint *points, CODER)
{
    const uint chunk = get_global_id(0);
    if (chunk >= chunks)
        return;
    const uint begin = chunk * chunk_cells, end = min(begin + chunk_cells, count);
    coder_t coder = OPEN_CODER(chunk);
    uint before = 0;
    for (uint i = begin; i < end; ++i) {
        const ulong parent = codes[i] >> 3;
        const uint crowd = (i > 0 && codes[i - 1] >> 3 == parent) +
                           2 * (i + 1 < count && codes[i + 1] >> 3 == parent);
        uint distance = 0;
        if (located) {
            const long x = (long)origin_x + collect(codes[i]), y = (long)origin_y + collect(codes[i] >> 1);
            distance = clamp(half_octaves((ulong)(x * x + y * y)) - 11, 0, 15);
        }
#ifdef DECODE
        const uint present = 1;
#else
        const uint present = points[i + 1] - points[i];
#endif
        uint more = code_bit(&coder, REPEATED + (distance * 3 + before) * 4 + crowd, present > 1);
        if (more)
            more += code_bit(&coder, REPEATED_AGAIN + distance, present > 2);
        before = more;
        if (more == 2)
            more += (uint)code_unsigned(&coder, REPEATS, present - 3UL);
#ifdef DECODE
        points[i] = 1 + more;
#endif
    }
    CLOSE_CODER(coder, chunk);
}
