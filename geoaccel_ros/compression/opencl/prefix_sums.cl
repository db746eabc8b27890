// Exclusive prefix sums, of blocks that fit a work-group: a work-item takes a run of consecutive values, so that the
// work is that of one work-item but for the sums of the runs.

uint sum_of_run(global const uint *values, uint begin, uint end)
{
    uint sum = 0;
    for (uint i = begin; i < end; ++i)
        sum += values[i];
    return sum;
}

// The runs' sums, in place, become the sums up to and with each. Hillis and Steele, 1986: after the round of
// stride s a lane holds the sum of 2 s lanes up to itself.
void add_lanes_below(local uint *sums)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint stride = 1; stride < lanes; stride *= 2) {
        const uint below = lane >= stride ? sums[lane - stride] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[lane] += below;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// The sum of each work-group's block.
kernel void sum_blocks(global const uint *values, uint count, uint run, global uint *block_sums, local uint *sums)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    const uint begin = min((uint)get_global_id(0) * run, count), end = min(begin + run, count);
    sums[lane] = sum_of_run(values, begin, end);
    add_lanes_below(sums);
    if (lane == lanes - 1)
        block_sums[get_group_id(0)] = sums[lane];
}

// The prefix sums of each block, in place, from what the blocks before it sum to: 0 for the first. The total of
// all goes to values[count].
kernel void scan_blocks(global uint *values, uint count, uint run, global const uint *block_starts,
                        local uint *sums)
{
    const uint lane = get_local_id(0);
    const uint begin = min((uint)get_global_id(0) * run, count), end = min(begin + run, count);
    const uint sum = sum_of_run(values, begin, end);
    sums[lane] = sum;
    add_lanes_below(sums);
    uint before = sums[lane] - sum;
    if (get_group_id(0) > 0)
        before += block_starts[get_group_id(0)];
    for (uint i = begin; i < end; ++i) {
        const uint value = values[i];
        values[i] = before;
        before += value;
    }
    if (get_global_id(0) == get_global_size(0) - 1)
        values[count] = before;
}
