// Coding of binary events with contexts, as the models see it.
//
// A model is written once, against code_bit, and goes on with the bit that code_bit returns. It is compiled
// three times: with -DCOUNT it counts its events, with -DEMIT it writes them for rans.cl to encode, with
// -DDECODE it takes its bits from the words that rans.cl made of them. Its kernels have CODER among their
// parameters, and OPEN_CODER and CLOSE_CODER around what they code.
//
// COUNT and EMIT have a coder for each work-item that codes anything: starts[item] is its first event, the
// exclusive prefix sum of what COUNT counted. DECODE has one for each chunk: chunks are decoded independently.

// Context of bits that are 1 as often as 0, in every table.
#define EVEN 0

// An event is context << 1 | bit; this one is skipped.
#define NO_EVENT 0xffff

#define PROBABILITY_BITS 15
// A state is in [INITIAL_STATE, 2^32), and exchanges 16 bits at a time with the words.
#define INITIAL_STATE 0x10000u

#if defined(COUNT)

typedef struct {
    uint count;
} coder_t;

#define CODER global uint *coder_counts
#define OPEN_CODER(item) open_coder()
#define CLOSE_CODER(coder, item) (coder_counts[item] = (coder).count)

coder_t open_coder(void)
{
    coder_t coder;
    coder.count = 0;
    return coder;
}

uint code_bit(coder_t *coder, uint context, uint bit)
{
    ++coder->count;
    return bit;
}

#elif defined(EMIT)

typedef struct {
    global ushort *events;
    uint position, end;
} coder_t;

#define CODER global const uint *coder_starts, global ushort *coder_events
#define OPEN_CODER(item) open_coder(coder_starts, coder_events, item)
#define CLOSE_CODER(coder, item)

coder_t open_coder(global const uint *starts, global ushort *events, uint item)
{
    coder_t coder;
    coder.events = events;
    coder.position = starts[item];
    coder.end = starts[item + 1];
    return coder;
}

uint code_bit(coder_t *coder, uint context, uint bit)
{
    if (coder->position < coder->end)
        coder->events[coder->position] = (ushort)(context << 1 | bit);
    ++coder->position;
    return bit;
}

#elif defined(DECODE)

typedef struct {
    global const ushort *words;
    global const ushort *probabilities;
    uint position, end, state;
} coder_t;

#define CODER \
    global const ushort *coder_words, global const uint *coder_chunks, global const ushort *coder_probabilities, \
        global uchar *coder_verdicts
#define OPEN_CODER(chunk) open_coder(coder_words, coder_chunks, coder_probabilities, chunk)
#define CLOSE_CODER(coder, chunk) (coder_verdicts[chunk] = ended_right(&(coder)))

// Words beyond the chunk's end are 0: a damaged chunk ends wrong, and is told by that.
uint next_word(coder_t *coder)
{
    const uint position = coder->position++;
    return position < coder->end ? coder->words[position] : 0;
}

coder_t open_coder(global const ushort *words, global const uint *chunks, global const ushort *probabilities,
                   uint chunk)
{
    coder_t coder;
    coder.words = words;
    coder.probabilities = probabilities;
    coder.position = chunks[chunk];
    coder.end = chunks[chunk + 1];
    coder.state = INITIAL_STATE;
    if (coder.position < coder.end) {
        coder.state = next_word(&coder) << 16;
        coder.state |= next_word(&coder);
    }
    return coder;
}

// Whether the encoder began where the decoder is now: all words read, and the first state.
uchar ended_right(const coder_t *coder)
{
    return coder->position == coder->end && coder->state == INITIAL_STATE;
}

// Duda, "Asymmetric numeral systems", 2014 (rANS), for two symbols: 1 holds the slots below its probability.
uint code_bit(coder_t *coder, uint context, uint bit)
{
    const uint one = coder->probabilities[context];
    const uint slot = coder->state & ((1u << PROBABILITY_BITS) - 1), high = coder->state >> PROBABILITY_BITS;
    bit = slot < one;
    // Selections, not branches: which way it goes is what nobody can predict.
    const uint frequency = bit ? one : (1u << PROBABILITY_BITS) - one;
    const uint start = bit ? 0 : one;
    coder->state = frequency * high + slot - start;
    if (coder->state < INITIAL_STATE)
        coder->state = coder->state << 16 | next_word(coder);
    return bit;
}

#endif
