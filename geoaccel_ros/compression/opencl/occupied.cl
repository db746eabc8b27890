// The distinct ones of sorted Morton codes: mark, prefix sum, gather; no atomics.

uint begins_cell(global const ulong *codes, uint i)
{
    return i == 0 || codes[i] != codes[i - 1];
}

// 1 for a point that is the first of its cell, else 0.
kernel void mark_first(global const ulong *codes, uint count, global uint *marks)
{
    const uint i = get_global_id(0);
    if (i < count)
        marks[i] = begins_cell(codes, i);
}

// places: the exclusive prefix sums of the marks. The code of each cell, and its first point; behind the last cell's
// the number of points.
kernel void gather_first(global const ulong *codes, uint count, global const uint *places, global ulong *leaves,
                         global uint *first)
{
    const uint i = get_global_id(0);
    if (i == 0)
        first[places[count]] = count;
    if (i >= count || !begins_cell(codes, i))
        return;
    leaves[places[i]] = codes[i];
    first[places[i]] = i;
}

// A part of the cells: of every `every` blocks of `block` cells the first.
kernel void take_blocks(global const ulong *leaves, uint block, uint every, uint count, global ulong *taken)
{
    const uint i = get_global_id(0);
    if (i < count)
        taken[i] = leaves[i / block * block * every + i % block];
}
