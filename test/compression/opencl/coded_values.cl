// A model for tests: the values of a chunk one after the other, in each of the ways that integers.cl knows.
#include "integers.cl"

#define SIGNED (EVEN + 1)
#define UNSIGNED (SIGNED + INTEGER_CONTEXTS)
#define TREE (UNSIGNED + INTEGER_CONTEXTS)
#define FLAG (TREE + 256)

kernel void code_values(CODER, uint chunks, uint chunk_size, uint count, global long *signeds,
                        global ulong *unsigneds, global uchar *bytes)
{
    const uint chunk = get_global_id(0);
    if (chunk >= chunks)
        return;
    coder_t coder = OPEN_CODER(chunk);
    for (uint i = chunk * chunk_size; i < min((chunk + 1) * chunk_size, count); ++i) {
        signeds[i] = code_integer(&coder, SIGNED, signeds[i]);
        // Only when the sign said so: what is coded may hang on what was decoded.
        if (code_bit(&coder, FLAG, signeds[i] < 0))
            unsigneds[i] = code_unsigned(&coder, UNSIGNED, unsigneds[i]);
        bytes[i] = (uchar)code_tree(&coder, TREE, bytes[i], 8);
    }
    CLOSE_CODER(coder, chunk);
}
