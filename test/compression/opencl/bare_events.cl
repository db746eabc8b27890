// Bare events: their contexts are given to the decoder, which adds the bits.
#include "coder.cl"

// A launch decodes the events [first, last) of each chunk.
kernel void decode_events(CODER, uint chunks, global const uint *starts, uint first, uint last, global ushort *events)
{
    const uint chunk = get_global_id(0);
    if (chunk >= chunks)
        return;
    const uint size = starts[chunk + 1] - starts[chunk];
    if (first > 0 && first >= size)
        return;
    coder_t coder = first == 0 ? OPEN_CODER(chunk) : RESUME_CODER(chunk);
    for (uint i = min(first, size); i < min(last, size); ++i) {
        const uint event = events[starts[chunk] + i];
        if (event != NO_EVENT)
            events[starts[chunk] + i] = (ushort)((event & ~1u) | code_bit(&coder, event >> 1, 0));
    }
    if (last < size)
        SUSPEND_CODER(coder, chunk);
    else
        CLOSE_CODER(coder, chunk);
}
