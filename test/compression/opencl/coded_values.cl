// A model for tests: the values of a chunk one after the other, as models of their own make them of what
// integers.cl knows.
#include "integers.cl"

#define SIGNED (EVEN + 1)
#define UNSIGNED (SIGNED + INTEGER_CONTEXTS)
#define TREE (UNSIGNED + INTEGER_CONTEXTS)
#define FLAG (TREE + 256)

// A number of `bits` bits, highest first, a context for each prefix: 2^bits contexts from base.
uint code_tree(coder_t *coder, uint base, uint value, uint bits)
{
    // Its leading one tells the prefixes apart.
    const uint leading = 1u << bits;
    uint node = 1;
    while (node < leading) {
        --bits;
        node = node << 1 | code_bit(coder, base + node, value >> bits & 1);
    }
    return node - leading;
}

// Any number, by its sign and magnitude.
long code_integer(coder_t *coder, uint base, long value)
{
    if (code_bit(coder, base, value == 0))
        return 0;
    const uint negative = code_bit(coder, base + 1, value < 0);
    // Unsigned, so that the lowest number's magnitude is right too.
    const ulong magnitude = code_magnitude(coder, base + 2, value < 0 ? 0 - (ulong)value : (ulong)value);
    return (long)(negative ? 0 - magnitude : magnitude);
}

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
