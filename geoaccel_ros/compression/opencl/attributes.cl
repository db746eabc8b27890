// Values of a field, each predicted from values before it in its chunk; the residual is coded by how sure that is.
//
// The expected size of a residual comes from the spread of the values that it is predicted from, and from the
// last two residuals. Its class (number of bits) is told first: whether it is below the expected one's, then
// class by class down or up. Contexts: the expected size, the level of the predicted value (its number of bits),
// and how near the nearest neighbour is.
#include "integers.cl"
#include "window.cl"

#define PREVIOUS 0
#define MEAN 1
#define LINEAR 2
#define NEAREST 3

#define SPREADS 19
#define LEVELS 8
// Of predictions along the order, and of those from neighbours that are far, near and very near.
#define NEARS 4
// Below the expected class or not; this class or one further down or up.
#define DOWN 3
#define UP 4
#define CLASS_CONTEXTS (1 + DOWN + UP)
// Signs: also by whether the first of the values predicted from lies below, at or above the prediction.
#define SIGNS_AT (1 + SPREADS * LEVELS * NEARS * CLASS_CONTEXTS)
#define MANTISSAS_AT (SIGNS_AT + 2 * SPREADS * LEVELS * 3)
#define MANTISSA_LENGTHS 14
#define CYCLES_AT (MANTISSAS_AT + 2 * 3 * MANTISSA_LENGTHS)
#define CONTEXTS (CYCLES_AT + 32)

#ifdef EMIT
#define COUNTS global uint *event_counts,
#define TELL_COUNT(coder, item) (event_counts[item] = (coder).position - coder_starts[item])
#else
#define COUNTS
#define TELL_COUNT(coder, item)
#endif

typedef struct {
    long value;
    // Four times the expected size of the residual.
    ulong spread;
    uint near, sense;
} prediction_t;

ulong distance_of(long a, long b)
{
    return a > b ? (ulong)a - (ulong)b : (ulong)b - (ulong)a;
}

// 0: a is below b, 1: they are equal, 2: above.
uint sense_of(long a, long b)
{
    return 1 + (a > b) - (a < b);
}

uint bits_of(ulong value)
{
    return 64 - (uint)clz(value);
}

// Values in their coding order from those in the cloud's; with `as_is` the orders are one.
kernel void gather_values32(global const int *values, uint as_is, global const uint *order, uint count,
                            global long *gathered)
{
    const uint i = get_global_id(0);
    if (i < count)
        gathered[i] = values[as_is ? i : order[i]];
}

kernel void gather_values64(global const long *values, uint as_is, global const uint *order, uint count,
                            global long *gathered)
{
    const uint i = get_global_id(0);
    if (i < count)
        gathered[i] = values[as_is ? i : order[i]];
}

// Along the order; a, b and c are the values before, the last first. Sums wrap: they are the same everywhere.
prediction_t predict_along(uint predictor, long a, long b, long c, ulong errors)
{
    prediction_t prediction;
    const ulong step = (ulong)a - (ulong)b;
    prediction.value = predictor == MEAN     ? (long)((ulong)b + (ulong)((long)(step + 1) >> 1))
                     : predictor == LINEAR ? (long)((ulong)a + step)
                                           : a;
    prediction.spread = 2 * distance_of(a, b) + distance_of(b, c) + errors;
    prediction.near = 0;
    prediction.sense = sense_of(a, b);
    return prediction;
}

// From the neighbours' values, which lie before `values`.
prediction_t predict_nearest(global const long *values, global const ushort *neighbours, uint stride, ulong errors)
{
    prediction_t prediction;
    const uint word = neighbours[0];
    const long first = values[-(long)(word & 63)];
    long others[NEIGHBOURS];
    ulong sum = 0;
    for (uint k = 1; k < NEIGHBOURS; ++k) {
        const uint other = neighbours[(ulong)k * stride];
        others[k] = values[-(long)(other & 63)];
        sum += (ulong)(other >> 6) * ((ulong)others[k] - (ulong)first);
    }
    prediction.value = (long)((ulong)first + (ulong)((long)(sum + 64) >> 7));
    ulong spread = (ulong)(word >> 6 & 255) * distance_of(first, prediction.value);
    for (uint k = 1; k < NEIGHBOURS; ++k)
        spread += (ulong)(neighbours[(ulong)k * stride] >> 6) * distance_of(others[k], prediction.value);
    prediction.spread = (spread >> 6) + errors;
    prediction.near = 1 + (word >> 14);
    prediction.sense = sense_of(first, prediction.value);
    return prediction;
}

// Half octaves as far as spreads are common, then octaves.
uint spread_class(ulong spread, uint bits)
{
    if (bits < 2)
        return bits;
    if (bits < 7)
        return 2 * bits - 2 + ((uint)(spread >> (bits - 2)) & 1);
    return min(bits + 5, (uint)SPREADS - 1);
}

long code_residual(coder_t *coder, const prediction_t *prediction, long residual)
{
    const ulong spread = prediction->spread;
    const uint bits = bits_of(spread);
    const uint expected = bits > 2 ? bits - 2 : 0;
    const uint level = prediction->value > 0 ? min(bits_of((ulong)prediction->value), (uint)LEVELS - 1) : 0;
    const uint cell = spread_class(spread, bits) * LEVELS + level;
    const uint base = 1 + (cell * NEARS + prediction->near) * CLASS_CONTEXTS;
    const ulong magnitude = residual < 0 ? 0 - (ulong)residual : (ulong)residual;
    const uint wanted = bits_of(magnitude);
    uint class = expected, steps = 0;
    // Nothing is below class 0: that needs no bit, neither here nor on the way down.
    if (expected > 0 && code_bit(coder, base, wanted < expected)) {
        while (--class > 0 && !code_bit(coder, base + 1 + min(steps, (uint)DOWN - 1), wanted == class))
            ++steps;
    } else {
        while (class < 64 && !code_bit(coder, base + 1 + DOWN + min(steps, (uint)UP - 1), wanted == class)) {
            ++class;
            ++steps;
        }
    }
    if (class == 0)
        return 0;
    const uint along = prediction->near == 0;
    const uint sign = SIGNS_AT + 3 * (along * SPREADS * LEVELS + cell) + prediction->sense;
    const uint negative = code_bit(coder, sign, residual < 0);
    uint rest = class - 1;
    ulong coded = 1;
    if (rest > 0) {
        const uint mantissa = MANTISSAS_AT + 3 * (along * MANTISSA_LENGTHS + min(rest, (uint)MANTISSA_LENGTHS) - 1);
        --rest;
        const uint second = code_bit(coder, mantissa, (uint)(magnitude >> rest) & 1);
        coded = 2 | second;
        if (rest > 0) {
            --rest;
            coded = coded << 1 | code_bit(coder, mantissa + 1 + second, (uint)(magnitude >> rest) & 1);
        }
    }
    if (rest > 0)
        coded = coded << rest | code_even_bits(coder, magnitude, rest);
    return (long)(negative ? 0 - coded : coded);
}

// Chunks first, first + every and so on, a work-item each; of each chunk `length` values or what there are.
kernel void code_values(global long *values, uint count, uint first, uint every, uint chunks, uint length,
                        uint predictor, long centre, global const ushort *neighbours, uint stride, COUNTS CODER)
{
    const uint item = get_global_id(0);
    if (item >= chunks)
        return;
    coder_t coder = OPEN_CODER(item);
    const ulong begin = (ulong)(first + item * every) * CHUNK, end = min(begin + length, (ulong)count);
    long a = centre, b = centre, c = centre;
    ulong last = 0, before = 0;
    for (ulong i = begin; i < end; ++i) {
        const bool along = predictor != NEAREST || !(neighbours[i] & 63);
        const prediction_t prediction = along
            ? predict_along(predictor, a, b, c, last + before)
            : predict_nearest(values + i, neighbours + i, stride, last + before);
        const long residual = code_residual(&coder, &prediction, (long)((ulong)values[i] - (ulong)prediction.value));
        const long value = (long)((ulong)prediction.value + (ulong)residual);
        values[i] = value;
        c = b;
        b = a;
        a = value;
        before = last;
        last = residual < 0 ? 0 - (ulong)residual : (ulong)residual;
    }
    CLOSE_CODER(coder, item);
    TELL_COUNT(coder, item);
}

#define MAX_CYCLE 256

// Values that come round and round with some left out, as the rings of a spinning lidar in the order of its
// shots: numbers below `size`, their places in the cycle. From one to the next each place on the way is told to
// be the next or not; contexts: in which of the last three rounds it was there, whether the place before it is
// there in this one, and whether the place after it was in the last.
kernel void code_cycles(global long *values, uint count, uint first, uint every, uint chunks, uint length,
                        uint size, COUNTS CODER)
{
    const uint item = get_global_id(0);
    if (item >= chunks)
        return;
    coder_t coder = OPEN_CODER(item);
    const ulong begin = (ulong)(first + item * every) * CHUNK, end = min(begin + length, (ulong)count);
    uchar rounds[MAX_CYCLE];
    for (uint place = 0; place < MAX_CYCLE; ++place)
        rounds[place] = 0;
    uint place = 0, is_there = 1;
    for (ulong i = begin; i < end; ++i) {
        const uint wanted = (uint)values[i];
        // After all others it must be the same again.
        for (uint steps = 1; steps <= size; ++steps) {
            place = place + 1 < size ? place + 1 : 0;
            const uint after = place + 1 < size ? place + 1 : 0;
            const uint context = CYCLES_AT + (rounds[place] & 7 | is_there << 3 | (rounds[after] & 1) << 4);
            is_there = steps == size || code_bit(&coder, context, place == wanted);
            rounds[place] = (uchar)(rounds[place] << 1 | is_there);
            if (is_there)
                break;
        }
        values[i] = place;
    }
    CLOSE_CODER(coder, item);
    TELL_COUNT(coder, item);
}
