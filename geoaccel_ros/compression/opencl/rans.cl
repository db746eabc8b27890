// Events to words: counted for the choice of probabilities, then encoded chunk by chunk. coder.cl decodes.
#include "builtins.cl"
#include "coder.cl"

// The bin of an event: its own, or one of the two behind all, for what is skipped and what is no event.
uint bin_of(uint event, uint bins)
{
    return event < bins ? event : bins + (event != NO_EVENT);
}

// A histogram of bins + 2 counts for each work-item, which takes a run of events.
kernel void count_runs(global const ushort *events, uint count, uint bins, uint items, global uint *histograms)
{
    const uint item = get_global_id(0);
    if (item >= items)
        return;
    const uint run = (count + items - 1) / items;
    const uint begin = min(item * run, count), end = min(begin + run, count);
    global uint *histogram = histograms + (ulong)item * (bins + 2);
    for (uint bin = 0; bin < bins + 2; ++bin)
        histogram[bin] = 0;
    for (uint i = begin; i < end; ++i)
        ++histogram[bin_of(events[i], bins)];
}

// One for each `windows` work-groups, which share its events and make a window of its bins each, in local memory.
kernel void count_in_groups(global const ushort *events, uint count, uint bins, uint windows, uint window,
                            global uint *histograms, local uint *histogram)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    const uint row = get_group_id(0) / windows, rows = get_num_groups(0) / windows;
    const uint first = get_group_id(0) % windows * window, size = min(window, bins + 2 - first);
    for (uint bin = lane; bin < size; bin += lanes)
        histogram[bin] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = row * lanes + lane; i < count; i += rows * lanes) {
        // Below the window's first it wraps around.
        const uint bin = bin_of(events[i], bins) - first;
        if (bin < size)
            atomic_inc(&histogram[bin]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint bin = lane; bin < size; bin += lanes)
        histograms[(ulong)row * (bins + 2) + first + bin] = histogram[bin];
}

kernel void sum_histograms(global const uint *histograms, uint rows, uint columns, global uint *sums)
{
    const uint column = get_global_id(0);
    if (column >= columns)
        return;
    uint sum = 0;
    for (uint row = 0; row < rows; ++row)
        sum += histograms[(ulong)row * columns + column];
    sums[column] = sum;
}

// What encodes a bit of some probability. With f its frequency among 2^15 and the state below 2^17 f,
// state / f is state * reciprocal >> 47; the reciprocal is 2^47 / f rounded up, and the product stays below 2^64
// (Granlund and Montgomery, 1994).
typedef struct {
    ulong reciprocal;
    uint frequency;
    uint start;
} symbol_t;

void encode_event(const symbol_t *symbol, uint *state, uint *position, global ushort *words)
{
    if (*state >= symbol->frequency << (32 - PROBABILITY_BITS)) {
        words[--*position] = (ushort)*state;
        *state >>= 16;
    }
    *state += (uint)(*state * symbol->reciprocal >> 47) * ((1u << PROBABILITY_BITS) - symbol->frequency)
            + symbol->start;
}

// Events that are looked up together, since one would wait for the word of the other: the compiler cannot know that
// what is written lies behind what is read.
#define TOGETHER 8

// The `together` events before `last`, from the last on.
INLINE void encode_events(global ushort *events, uint last, uint together, uint bins, global const uchar *table,
                          global const symbol_t *symbols, uint *state, uint *position)
{
    uint event[TOGETHER];
    symbol_t symbol[TOGETHER];
#pragma unroll
    for (uint k = 0; k < together; ++k)
        event[k] = events[last - 1 - k];
    // What is skipped is looked up behind the last context.
#pragma unroll
    for (uint k = 0; k < together; ++k)
        symbol[k] = symbols[table[min(event[k], bins) >> 1] << 1 | (event[k] & 1)];
#pragma unroll
    for (uint k = 0; k < together; ++k)
        if (event[k] != NO_EVENT)
            encode_event(&symbol[k], state, position, events);
}

// A work-item encodes a chunk backwards, as the decoder will want its bits in order. The words take the place of
// the events that they encode, at the chunk's end: an event makes one word at most.
kernel void encode_chunks(global ushort *events, global const uint *starts, uint chunks, uint bins,
                          global const uchar *table, global const symbol_t *symbols, global uint *word_counts,
                          global uint *states)
{
    const uint chunk = get_global_id(0);
    if (chunk >= chunks)
        return;
    const uint begin = starts[chunk], end = starts[chunk + 1];
    uint state = INITIAL_STATE, position = end, i = end;
    for (; i - begin >= TOGETHER; i -= TOGETHER)
        encode_events(events, i, TOGETHER, bins, table, symbols, &state, &position);
    for (; i > begin; --i)
        encode_events(events, i, 1, bins, table, symbols, &state, &position);
    // Two more for the state, unless there was no event.
    word_counts[chunk] = state == INITIAL_STATE && position == end ? 0 : end - position + 2;
    states[chunk] = state;
}

// A work-group moves a chunk's words to their place behind the chunk's state.
kernel void gather_words(global const ushort *events, global const uint *starts, global const uint *states,
                         global const uint *chunk_words, global ushort *words)
{
    const uint chunk = get_group_id(0), lane = get_local_id(0), lanes = get_local_size(0);
    const uint first = chunk_words[chunk], count = chunk_words[chunk + 1] - first;
    if (count == 0)
        return;
    if (lane == 0) {
        words[first] = (ushort)(states[chunk] >> 16);
        words[first + 1] = (ushort)states[chunk];
    }
    const uint source = starts[chunk + 1] - (count - 2);
    for (uint i = lane; i < count - 2; i += lanes)
        words[first + 2 + i] = events[source + i];
}
