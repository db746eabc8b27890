// One pass of a stable radix sort: count the digits, (prefix sums,) scatter. No atomics: each work-item counts a run of
// consecutive keys in counters of its own, counters[lane][digit] in local memory.

uint digit_of(ulong key, uint shift, uint digits)
{
    return (uint)(key >> shift) & (digits - 1);
}

// The digits of each lane's run [begin, end).
void count_run(global const ulong *keys, uint begin, uint end, uint shift, uint digits, local uint *counters)
{
    local uint *mine = counters + get_local_id(0) * digits;
    for (uint digit = 0; digit < digits; ++digit)
        mine[digit] = 0;
    for (uint i = begin; i < end; ++i)
        ++mine[digit_of(keys[i], shift, digits)];
}

// counts[digit][group]: so that the exclusive prefix sum of all is where each group's keys of a digit go.
kernel void count_digits(global const ulong *keys, uint count, uint run, uint shift, uint digits,
                         global uint *counts, local uint *counters)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    const uint begin = min((uint)get_global_id(0) * run, count), end = min(begin + run, count);
    count_run(keys, begin, end, shift, digits, counters);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint digit = lane; digit < digits; digit += lanes) {
        uint sum = 0;
        for (uint counter = digit; counter < lanes * digits; counter += digits)
            sum += counters[counter];
        counts[digit * get_num_groups(0) + get_group_id(0)] = sum;
    }
}

// Payloads are taken from `payloads`, or are the keys' places if these are `unsorted`.
kernel void scatter_keys(global const ulong *keys, global const uint *payloads, uint unsorted, uint count, uint run,
                         uint shift, uint digits, global const uint *starts, global ulong *sorted_keys,
                         global uint *sorted_payloads, local uint *counters)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    const uint begin = min((uint)get_global_id(0) * run, count), end = min(begin + run, count);
    // A lane that is alone needs no counts: it begins where its group does.
    count_run(keys, begin, lanes > 1 ? end : begin, shift, digits, counters);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint digit = lane; digit < digits; digit += lanes) {
        uint start = starts[digit * get_num_groups(0) + get_group_id(0)];
        // By addresses: with the lanes numbered, PoCL 3 leaves out the counting above.
        for (uint counter = digit; counter < lanes * digits; counter += digits) {
            const uint counted = counters[counter];
            counters[counter] = start;
            start += counted;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    local uint *places = counters + lane * digits;
    for (uint i = begin; i < end; ++i) {
        const ulong key = keys[i];
        const uint place = places[digit_of(key, shift, digits)]++;
        sorted_keys[place] = key;
        sorted_payloads[place] = unsorted ? i : payloads[i];
    }
}
