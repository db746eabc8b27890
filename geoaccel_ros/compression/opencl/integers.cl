// Integers as binary events: exponential Golomb codes with contexts where these tell something.
#include "builtins.cl"
#include "coder.cl"

// The class of a magnitude is the position of its leading bit. So many classes have an own context for "of a higher
// class"; larger ones share the last. So many, from class 1 on, have own contexts for the two bits below the leading.
#define MAGNITUDE_CLASSES 32
#define MANTISSA_CLASSES 12
// Those after the zero flag's and one that is left out.
#define INTEGER_CONTEXTS (2 + MAGNITUDE_CLASSES + 3 * MANTISSA_CLASSES)

// The `bits` lowest bits of value, as often 0 as 1; at most 64.
ulong code_even_bits(coder_t *coder, ulong value, uint bits)
{
    ulong coded = 0;
    while (bits > 0) {
        --bits;
        coded = coded << 1 | code_bit(coder, EVEN, (uint)(value >> bits) & 1);
    }
    return coded;
}

// A number that is not 0.
ulong code_magnitude(coder_t *coder, uint base, ulong magnitude)
{
    uint class = 0;
    // Conditional expressions where min would do: to PoCL that is a call.
    while (class < 63
           && code_bit(coder, base + (class < MAGNITUDE_CLASSES ? class : MAGNITUDE_CLASSES - 1),
                       magnitude >> class > 1))
        ++class;
    if (class == 0)
        return 1;
    const uint context = base + MAGNITUDE_CLASSES + 3 * ((class < MANTISSA_CLASSES ? class : MANTISSA_CLASSES) - 1);
    const uint second = code_bit(coder, context, (uint)(magnitude >> (class - 1)) & 1);
    if (class == 1)
        return 2 | second;
    const uint third = code_bit(coder, context + 1 + second, (uint)(magnitude >> (class - 2)) & 1);
    const ulong top = 4 | second << 1 | third;
    return top << (class - 2) | code_even_bits(coder, magnitude, class - 2);
}

// Any number of 64 bits, with the contexts [base, base + INTEGER_CONTEXTS).
ulong code_unsigned(coder_t *coder, uint base, ulong value)
{
    if (code_bit(coder, base, value == 0))
        return 0;
    return code_magnitude(coder, base + 2, value);
}
