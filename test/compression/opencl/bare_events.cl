// Bare events: their contexts are given to the decoder, which adds the bits.
#include "coder.cl"

kernel void decode_events(CODER, uint chunks, global const uint *starts, global ushort *events)
{
    const uint chunk = get_global_id(0);
    if (chunk >= chunks)
        return;
    coder_t coder = OPEN_CODER(chunk);
    for (uint i = starts[chunk]; i < starts[chunk + 1]; ++i)
        if (events[i] != NO_EVENT)
            events[i] = (ushort)((events[i] & ~1u) | code_bit(&coder, events[i] >> 1, 0));
    CLOSE_CODER(coder, chunk);
}
