// Cells of points in their coding order, each predicted from those before it in its chunk.
//
// Model SPIN, for lasers that turn about the z axis of the cloud's frame: the points of a line lie on a cone
// z = slope * r + height about the origin, and their azimuths are multiples of a step. A phase-locked loop follows
// azimuth and step; r is predicted from the points before. Told are the multiple, then the coordinate of the two
// that the beam runs along, then the other and z, which the beam then tells to a fraction of a cell.
//
// Model LINEAR, for all else: each coordinate is that of the point before, or goes on as it went.
//
// Everything is in integers, so that every device finds the same: lengths in 1/256 of a cell, angles in 2^-32 of a
// turn, sines, slopes and weights as shifts tell. Cells of SPIN are below 2^22; nothing then exceeds 63 bits,
// whatever a damaged stream holds.
#include "integers.cl"

// A residual that is predicted to a fraction of a cell: contexts by that fraction for "none", for the sign, towards
// the fraction or away, and for "one" and "two"; larger ones by the scale alone.
#define NEAR 4
#define FAR_CLASSES 14
#define FAR_MANTISSAS 12
#define FAR (FAR_CLASSES + FAR_MANTISSAS)
#define FRACTION_BITS 3
#define FRACTIONS (1 << FRACTION_BITS)
// One residual scale: all its fractions, then what is far.
#define SCALE (NEAR * FRACTIONS + FAR)
// Where the scale is so large that the fraction tells nothing.
#define COARSE_SCALE (NEAR + FAR)

// A point at the sensor's place is no return: the last two points' flags.
#define ORIGIN_AT 1
#define MODEL_AT (ORIGIN_AT + 4)

// SPIN: steps since the last odd multiple (up to 15), and whether the last multiple was the usual one; or the
// multiple so many points ago, for sensors that send their columns in another order than they fired.
#define MULTIPLES_SINCE 32
#define MULTIPLES (MULTIPLES_SINCE + 16)
#define RANGES_FINE 6
#define RANGES_COARSE 10
#define RANGE_LAST 4
#define ACROSS 12
#define SLANTS 4
#define HEIGHTS 12
#define PLACE_AT (MODEL_AT + MULTIPLES * (NEAR + FAR))
#define RANGE_AT (PLACE_AT + 3 * (NEAR + FAR))
#define ACROSS_AT (RANGE_AT + RANGE_LAST * (RANGES_FINE * SCALE + RANGES_COARSE * COARSE_SCALE))
#define HEIGHT_AT (ACROSS_AT + SLANTS * ACROSS * SCALE)
#define SPIN_CONTEXTS (HEIGHT_AT + HEIGHTS * SCALE)

// LINEAR: axis, scale, and how large the residual of the axis before was.
#define LINEAR_FINE 6
#define LINEAR_COARSE 8
#define LINEAR_LAST 4
#define LINEAR_AXIS (LINEAR_LAST * (LINEAR_FINE * SCALE + LINEAR_COARSE * COARSE_SCALE))
#define LINEAR_CONTEXTS (MODEL_AT + 3 * LINEAR_AXIS)

#define SPIN_LIMIT (1 << 22)
// 2^32 / (2 pi): angles of a radian.
#define RADIAN 683565276L
#define SINES 4096

// What the header tells of a model, a row for each that is tried.
#define USUAL 0
#define STEP 1
#define PHASE_GAIN 2
#define STEP_GAIN 3
#define OFFSETS 4
#define REPETITION 5
// Where the sensor was and how it stood: since the azimuth SEAM it has turned from -1/2 to 1/2. Its place in 1/256 of
// a cell, its tilt in slopes towards x and y (2^16 is 1), and what of both changes by turn.
#define SEAM 6
#define PLACE_X 7
#define PLACE_Y 8
#define MOTION_X 9
#define MOTION_Y 10
#define MOTION_Z 11
#define TILT_X 12
#define TILT_Y 13
#define TILTING_X 14
#define TILTING_Y 15
#define PARAMETERS 16

uint class_of(ulong value)
{
    return 63 - (uint)clz(value | 1);
}

// Classes of half an octave: 0, 1, 2, 3, 4-5, 6-7, 8-11 ...
uint scale_of(ulong value, uint scales)
{
    uint scale = (uint)value;
    if (value >= 4) {
        const uint class = class_of(value);
        scale = 2 * class + ((uint)(value >> (class - 1)) & 1);
    }
    return min(scale, scales - 1);
}

long code_residual(coder_t *coder, uint near, uint far, long residual)
{
    if (code_bit(coder, near, residual == 0))
        return 0;
    const uint negative = code_bit(coder, near + 1, residual < 0);
    const ulong wanted = residual < 0 ? 0 - (ulong)residual : (ulong)residual;
    ulong magnitude;
    if (code_bit(coder, near + 2, wanted == 1)) {
        magnitude = 1;
    } else if (code_bit(coder, near + 3, wanted == 2)) {
        magnitude = 2;
    } else {
        const ulong rest = wanted - 2;
        const uint last = class_of(rest);
        uint class = 0;
        while (class < 63 && code_bit(coder, far + min(class, (uint)FAR_CLASSES - 1), last > class))
            ++class;
        magnitude = 1;
        if (class > 0) {
            const uint mantissa = far + FAR_CLASSES + min(class, (uint)FAR_MANTISSAS) - 1;
            magnitude = 2 | code_bit(coder, mantissa, (uint)(rest >> (class - 1)) & 1);
            magnitude = magnitude << (class - 1) | code_even_bits(coder, rest, class - 1);
        }
        magnitude += 2;
    }
    return (long)(negative ? 0 - magnitude : magnitude);
}

// A cell that is predicted in 1/256 of a cell. The residual is mirrored so that the prediction lies at or above the
// middle of its cell.
long code_cell(coder_t *coder, uint base, bool fine, long predicted, long cell)
{
    const long nearest = (predicted + 128) >> 8;
    const long fraction = predicted - nearest * 256;
    const bool mirrored = fraction < 0;
    const uint position = min((uint)(mirrored ? -fraction : fraction) >> (7 - FRACTION_BITS), (uint)FRACTIONS - 1);
    const uint near = fine ? base + position * NEAR : base, far = fine ? base + FRACTIONS * NEAR : base + NEAR;
    long residual = (long)((ulong)cell - (ulong)nearest);
    residual = mirrored ? (long)(0 - (ulong)residual) : residual;
    residual = code_residual(coder, near, far, residual);
    residual = mirrored ? (long)(0 - (ulong)residual) : residual;
    return (long)((ulong)nearest + (ulong)residual);
}

// Scales fine and coarse, one after the other.
uint scale_base(uint scale, uint fine)
{
    return scale < fine ? scale * SCALE : fine * SCALE + (scale - fine) * COARSE_SCALE;
}

// An average over about 2^shift values.
void follow(long *average, long value, uint shift)
{
    *average += (value - *average) >> shift;
}

long magnitude_of(long value)
{
    return value < 0 ? -value : value;
}

// Rounded to the nearest, half away from 0.
long nearest_quotient(long dividend, long divisor)
{
    const long quotient = (2 * magnitude_of(dividend) + divisor) / (2 * divisor);
    return dividend < 0 ? -quotient : quotient;
}

// Cosine and sine, 2^30 is 1.
typedef struct {
    long c, s;
} direction_t;

direction_t direction_of(uint azimuth, global const int *sines)
{
    const uint i = azimuth >> 20;
    const long rest = azimuth & 0xfffff;
    direction_t d;
    d.s = sines[i] + (((sines[i + 1] - (long)sines[i]) * rest) >> 20);
    d.c = sines[i + SINES / 4] + (((sines[i + SINES / 4 + 1] - (long)sines[i + SINES / 4]) * rest) >> 20);
    return d;
}

// Azimuth of a position of less than 2^31: from the octant, twice corrected by Newton's rule.
uint azimuth_of(long x, long y, global const int *sines)
{
    const long a = magnitude_of(x), b = magnitude_of(y);
    if (a == 0 && b == 0)
        return 0;
    uint azimuth = a >= b ? (uint)((b << 29) / a) : (1u << 30) - (uint)((a << 29) / b);
    for (uint round = 0; round < 2; ++round) {
        const direction_t d = direction_of(azimuth, sines);
        const long across = (d.c * b - d.s * a) >> 30, along = (d.c * a + d.s * b) >> 30;
        if (along > 0)
            azimuth += (uint)(across * RADIAN / along);
    }
    if (x < 0)
        azimuth = (1u << 31) - azimuth;
    return y < 0 ? 0 - azimuth : azimuth;
}

// Where an average r goes on to: with the last steps, or smoothed.
typedef struct {
    long last, step, smooth, smooth_step;
    long last_error, smooth_error;
} range_t;

// The sensor's place and tilt.
typedef struct {
    long x, y, z, tilt_x, tilt_y;
} pose_t;

pose_t pose_of(uint azimuth, global const int *parameters)
{
    // In 2^-32 of a turn.
    const long turned = (int)(azimuth - (uint)parameters[SEAM] - (1u << 31));
    pose_t pose;
    pose.x = parameters[PLACE_X] + ((parameters[MOTION_X] * turned) >> 32);
    pose.y = parameters[PLACE_Y] + ((parameters[MOTION_Y] * turned) >> 32);
    pose.z = (parameters[MOTION_Z] * turned) >> 32;
    pose.tilt_x = parameters[TILT_X] + ((parameters[TILTING_X] * turned) >> 32);
    pose.tilt_y = parameters[TILT_Y] + ((parameters[TILTING_Y] * turned) >> 32);
    return pose;
}

typedef struct {
    uint azimuth;
    // Of the step, in 1/256.
    long deviation;
    ulong weight;
    // Of the multiples: since an odd one, and whether the last was unusual; the last 16, four bits each.
    uint since, unusual;
    ulong multiples;
    range_t range;
    // Sizes of the errors: of r, of the angle in 2^-16 radian, of z; that of r at the last point.
    long range_scale, across_scale, height_scale, range_last;
    // z above the cone, followed quickly and slowly, and how well each did.
    long quick, slow, quick_error, slow_error;
    uint line;
} spin_t;

void open_spin(spin_t *s)
{
    s->azimuth = 0;
    s->deviation = 0;
    s->weight = 0;
    s->since = 15;
    s->unusual = 0;
    s->multiples = 0;
    s->range.last = s->range.step = s->range.smooth = s->range.smooth_step = 0;
    s->range.last_error = s->range.smooth_error = 64;
    s->range_scale = s->across_scale = s->height_scale = 64;
    s->range_last = 0;
    s->quick = s->slow = 0;
    s->quick_error = s->slow_error = 64;
    s->line = 0xffffffff;
}

long predicted_range(const range_t *range)
{
    return range->last_error <= range->smooth_error ? range->last + range->step : range->smooth + range->smooth_step;
}

void update_range(range_t *range, long r)
{
    const long by_last = r - range->last - range->step, by_smooth = r - range->smooth - range->smooth_step;
    follow(&range->last_error, min(magnitude_of(by_last), 4096L), 4);
    follow(&range->smooth_error, min(magnitude_of(by_smooth), 4096L), 4);
    range->step = magnitude_of(by_last) < 24 * 256 ? (5 * range->step + 3 * (r - range->last)) >> 3 : 0;
    if (magnitude_of(by_smooth) < 8 * 256) {
        range->smooth += range->smooth_step + (by_smooth >> 1);
        range->smooth_step += by_smooth >> 4;
    } else {
        range->smooth = r;
        range->smooth_step = 0;
    }
    range->last = r;
}

// cells: x, y, z in three planes of `count`; fine: x and y in 1/256 of a cell, for the encoder's choice alone.
// lines: slope (2^16 is 1), height and offset of each.
void code_spin(coder_t *coder, spin_t *s, global int *cells, global const int *fine, uint count, uint point,
               uint line, global const int *lines, global const int *parameters, global const int *sines)
{
    const long step = parameters[STEP] + (s->deviation >> 8);
    const long slope = lines[3 * line], height = lines[3 * line + 1];
    const long offset = parameters[OFFSETS] ? lines[3 * line + 2] : 0;
    const bool first = line != s->line;
    if (first) {
        s->quick = s->slow = 0;
        s->quick_error = s->slow_error = 64;
        s->range.step = s->range.smooth_step = 0;
        s->line = line;
    }
    direction_t d;
    pose_t pose;
    long multiple = 0;
#ifndef DECODE
    {
        // The beam passes the axis at a distance of `offset`.
        pose = pose_of(s->azimuth + (uint)parameters[USUAL] * (uint)step, parameters);
        const long x = fine[point] - pose.x, y = fine[count + point] - pose.y;
        d = direction_of(s->azimuth, sines);
        const long across = ((d.c * y - d.s * x) >> 30) - offset, along = (d.c * x + d.s * y) >> 30;
        long ahead;
        if (along > 0 && magnitude_of(across) < along >> 4) {
            ahead = across * RADIAN / along;
        } else {
            const long far = max(max(magnitude_of(x), magnitude_of(y)), 256L);
            ahead = (int)(azimuth_of(x, y, sines) - (uint)(offset * RADIAN / far) - s->azimuth);
        }
        multiple = nearest_quotient(step < 0 ? -ahead : ahead, magnitude_of(step));
    }
#endif
    const uint repetition = parameters[REPETITION];
    const uint circumstance = repetition ? MULTIPLES_SINCE + ((uint)(s->multiples >> 4 * (repetition - 1)) & 15)
                                         : 2 * s->since + s->unusual;
    const uint multiples = MODEL_AT + circumstance * (NEAR + FAR);
    multiple = code_residual(coder, multiples, multiples + NEAR, multiple - parameters[USUAL]);
    s->unusual = multiple != 0;
    s->multiples = s->multiples << 4 | (ulong)(clamp(multiple, -8L, 7L) & 15);
    multiple = (long)((ulong)multiple + (ulong)parameters[USUAL]);
    if (multiple & 1)
        s->since = multiple == 1 || s->since == 15 ? 0 : 1;
    else
        s->since = (uint)clamp((long)s->since + clamp(multiple >> 1, -16L, 16L), 0L, 15L);
    s->azimuth += (uint)multiple * (uint)step;
    d = direction_of(s->azimuth, sines);
    pose = pose_of(s->azimuth, parameters);

    // The beam runs along x or along y.
    const bool on_x = magnitude_of(d.c) >= magnitude_of(d.s);
    const bool backwards = (on_x ? d.c : d.s) < 0;
    long along_of_r = on_x ? d.c : d.s, across_of_r = on_x ? d.s : d.c;
    long along_offset = (((on_x ? -d.s : d.c) * offset) >> 30) + (on_x ? pose.x : pose.y);
    long across_offset = (((on_x ? d.c : -d.s) * offset) >> 30) + (on_x ? pose.y : pose.x);
    global int *along_cells = cells + (on_x ? 0 : count), *across_cells = cells + (on_x ? count : 0);
    long along = along_cells[point], across = across_cells[point];
    if (backwards) {
        along_of_r = -along_of_r;
        across_of_r = -across_of_r;
        along_offset = -along_offset;
        across_offset = -across_offset;
        along = -along;
        across = -across;
    }
    const long expected = predicted_range(&s->range);
    const uint range_scale = scale_of((ulong)s->range_scale >> 5, RANGES_FINE + RANGES_COARSE);
    const uint last = s->range_last < 96 ? 0 : s->range_last < 256 ? 1 : s->range_last < 1024 ? 2 : 3;
    const uint ranges = RANGE_AT + last * (RANGES_FINE * SCALE + RANGES_COARSE * COARSE_SCALE)
                      + scale_base(range_scale, RANGES_FINE);
    along = code_cell(coder, ranges, range_scale < RANGES_FINE,
                      ((expected * along_of_r) >> 30) + along_offset, along);
    along = clamp(along, -(long)SPIN_LIMIT, (long)SPIN_LIMIT);

    const long slant = across_of_r * 65536 / along_of_r;
    const uint slants = min((uint)magnitude_of(slant) >> 14, (uint)SLANTS - 1);
    const ulong spread = (ulong)s->across_scale * (ulong)max(s->range.last, 256L);
    const uint across_scale = scale_of(spread >> 20, ACROSS);
    across = code_cell(coder, ACROSS_AT + (slants * ACROSS + across_scale) * SCALE, true,
                       (((along * 256 - along_offset) * slant) >> 16) + across_offset, across);
    across = clamp(across, -(long)SPIN_LIMIT, (long)SPIN_LIMIT);
    if (backwards) {
        along = -along;
        across = -across;
    }

    const long x = on_x ? along : across, y = on_x ? across : along;
    const long from_x = x * 256 - pose.x, from_y = y * 256 - pose.y;
    const long beside = ((d.c * from_y - d.s * from_x) >> 30) - offset, r = (d.c * from_x + d.s * from_y) >> 30;
    if (r > 256) {
        // A cell tells the angle the better the further it is away.
        const ulong weight = min((ulong)(r * r) >> 16, (ulong)1 << 24) + 1;
        s->weight = s->weight - (s->weight >> parameters[PHASE_GAIN]) + weight;
        const long tangent = clamp(beside * (1 << 30) / r, -(1L << 30), 1L << 30);
        const long turn = ((tangent * RADIAN) >> 30) * (long)weight / (long)s->weight;
        s->azimuth += (uint)turn;
        if (multiple > 0 && multiple < 64) {
            const long limit = 8 * magnitude_of(parameters[STEP]);
            const long more = (turn * 256) >> parameters[STEP_GAIN];
            s->deviation = clamp(s->deviation + (step < 0 ? -more : more), -limit, limit);
        }
        follow(&s->across_scale, min(magnitude_of(tangent) >> 14, 4096L), 3);
    }
    s->range_last = magnitude_of(r - expected);
    s->range_scale = min((s->range_scale + s->range_last) >> 1, 65536L);
    update_range(&s->range, r);

    const long tilt = (pose.tilt_x * d.c + pose.tilt_y * d.s) >> 30;
    const long cone = (((slope + tilt) * r) >> 16) + height + pose.z;
    const long above = s->quick_error < s->slow_error ? s->quick : s->slow;
    const uint heights = scale_of((ulong)s->height_scale >> 4, HEIGHTS);
    long z = code_cell(coder, HEIGHT_AT + heights * SCALE, true, cone + above, cells[2 * (ulong)count + point]);
    z = clamp(z, -(long)SPIN_LIMIT, (long)SPIN_LIMIT);
    const long error = z * 256 - cone;
    follow(&s->height_scale, min(magnitude_of(error - above), 2048L), 3);
    follow(&s->quick_error, min(magnitude_of(error - s->quick), 2048L), 4);
    follow(&s->slow_error, min(magnitude_of(error - s->slow), 2048L), 4);
    if (first)
        s->quick = s->slow = error;
    follow(&s->quick, error, 2);
    follow(&s->slow, error, 4);
#ifdef DECODE
    cells[point] = (int)x;
    cells[count + point] = (int)y;
    cells[2 * (ulong)count + point] = (int)z;
#endif
}

typedef struct {
    // In 1/16 of a cell, but for the last cell.
    long last, step, scale, still_error, moving_error;
} axis_t;

void code_linear(coder_t *coder, axis_t *axes, global int *cells, uint count, uint point)
{
    uint before = 0;
    for (uint a = 0; a < 3; ++a) {
        axis_t *axis = axes + a;
        global int *cell = cells + (ulong)a * count + point;
        const long still = axis->last * 16, moving = still + axis->step;
        const long expected = axis->still_error <= axis->moving_error ? still : moving;
        const uint scale = scale_of((ulong)axis->scale >> 2, LINEAR_FINE + LINEAR_COARSE);
        const uint base = MODEL_AT + a * LINEAR_AXIS
                        + before * (LINEAR_FINE * SCALE + LINEAR_COARSE * COARSE_SCALE)
                        + scale_base(scale, LINEAR_FINE);
        const long value = (int)(uint)code_cell(coder, base, scale < LINEAR_FINE, expected * 16, *cell);
        const long error = magnitude_of(value * 16 - expected), change = value - axis->last;
        before = error < 12 ? 0 : error < 40 ? 1 : error < 160 ? 2 : 3;
        follow(&axis->still_error, min(magnitude_of(value * 16 - still), 65536L), 3);
        follow(&axis->moving_error, min(magnitude_of(value * 16 - moving), 65536L), 3);
        follow(&axis->scale, min(error, 65536L), 2);
        if (magnitude_of(change) < 64)
            follow(&axis->step, change * 16, 1);
        else
            axis->step = 0;
        axis->last = value;
#ifdef DECODE
        *cell = (int)value;
#endif
    }
}

// Whether the point is at the origin, if the cloud has such points.
bool code_origin(coder_t *coder, uint *history, global int *cells, uint count, uint point)
{
    const bool wanted = cells[point] == 0 && cells[count + point] == 0 && cells[2 * (ulong)count + point] == 0;
    const bool at_origin = code_bit(coder, ORIGIN_AT + *history, wanted);
    *history = (*history << 1 | at_origin) & 3;
#ifdef DECODE
    if (at_origin)
        cells[point] = cells[count + point] = cells[2 * (ulong)count + point] = 0;
#endif
    return at_origin;
}

// Whether the point is where the sensor was: so are beams without a return, once a cloud was moved.
bool code_place(coder_t *coder, uint *history, spin_t *s, global int *cells, uint count, uint point,
                global const int *parameters)
{
    const uint azimuth = s->azimuth + (uint)parameters[USUAL] * (uint)(parameters[STEP] + (s->deviation >> 8));
    const pose_t pose = pose_of(azimuth, parameters);
    const long place[3] = {pose.x, pose.y, pose.z}, tolerance[3] = {512, 512, 2048};
    bool wanted = true;
    for (uint a = 0; a < 3; ++a)
        wanted = wanted && magnitude_of((long)cells[(ulong)a * count + point] * 256 - place[a]) <= tolerance[a];
    const bool at_place = code_bit(coder, ORIGIN_AT + *history, wanted);
    *history = (*history << 1 | at_place) & 3;
    if (at_place) {
        s->azimuth = azimuth;
        for (uint a = 0; a < 3; ++a) {
            global int *cell = cells + (ulong)a * count + point;
            const uint base = PLACE_AT + a * (NEAR + FAR);
            const long nearest = (place[a] + 128) >> 8;
            const long residual = code_residual(coder, base, base + NEAR, *cell - nearest);
#ifdef DECODE
            *cell = (int)(uint)((ulong)nearest + (ulong)residual);
#endif
        }
    }
    return at_place;
}

// Encoding, a work-item tells how many events it has: those beyond its place in the buffer are lost.
#ifdef DECODE
#define CODED CODER
#define CODER_OF(item, chunk) (chunk)
#define TELL_COUNT(coder, item)
#else
#define CODED CODER, global uint *event_counts
#define CODER_OF(item, chunk) (item)
#define TELL_COUNT(coder, item) (event_counts[item] = (coder).position - coder_starts[item])
#endif

// Chunks first, first + every and so on, of `size` points, a work-item each; the models of `rows` parameters, one
// after the other.
kernel void code_spins(CODED, uint first, uint every, uint chunks, uint size, uint rows, global int *cells,
                       global const uint *order, uint count, uint has_origins, global const int *fine, global const ushort *line_of,
                       global const int *lines, global const int *parameters, global const int *sines)
{
    const uint item = get_global_id(0);
    if (item >= rows * chunks)
        return;
    const uint chunk = first + item % chunks * every;
    parameters += item / chunks * PARAMETERS;
    coder_t coder = OPEN_CODER(CODER_OF(item, chunk));
    const uint begin = min(chunk * size, count), end = min(begin + size, count);
    spin_t state;
    open_spin(&state);
    uint history = 0;
    for (uint i = begin; i < end; ++i) {
        const uint point = order[i];
        if (!has_origins || !code_place(&coder, &history, &state, cells, count, point, parameters))
            code_spin(&coder, &state, cells, fine, count, point, line_of[i], lines, parameters, sines);
    }
    CLOSE_CODER(coder, CODER_OF(item, chunk));
    TELL_COUNT(coder, item);
}

kernel void code_linears(CODED, uint first, uint every, uint chunks, uint size, uint rows, global int *cells,
                         global const uint *order, uint count, uint has_origins)
{
    const uint item = get_global_id(0);
    if (item >= rows * chunks)
        return;
    const uint chunk = first + item % chunks * every;
    coder_t coder = OPEN_CODER(CODER_OF(item, chunk));
    const uint begin = min(chunk * size, count), end = min(begin + size, count);
    axis_t axes[3];
    for (uint a = 0; a < 3; ++a) {
        axes[a].last = axes[a].step = 0;
        axes[a].scale = axes[a].still_error = axes[a].moving_error = 64;
    }
    uint history = 0;
    for (uint i = begin; i < end; ++i)
        if (!has_origins || !code_origin(&coder, &history, cells, count, order[i]))
            code_linear(&coder, axes, cells, count, order[i]);
    CLOSE_CODER(coder, CODER_OF(item, chunk));
    TELL_COUNT(coder, item);
}
