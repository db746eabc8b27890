// Values predicted from the mean of their parent node's values so far, alone or together with neighbours.
#include "attributes.cl"

// Of 128: the mean's part where points are, and the neighbours are not, as sure as it.
#define HALF 64

// `parents` numbers each point's parent node. The mean counts as much as each neighbour, or, adaptively, only
// where the nearest neighbour is far: half.
kernel void code_by_parent(global long *values, uint count, uint chunks, long centre, global const uint *parents,
                           global const ushort *neighbours, uint stride, uint used, uint is_adaptive, CODER)
{
    const uint item = get_global_id(0);
    if (item >= chunks)
        return;
    coder_t coder = OPEN_CODER(item);
    const ulong begin = (ulong)item * CHUNK, end = min(begin + CHUNK, (ulong)count);
    long a = centre, b = centre, c = centre, sum = 0, members = 0;
    ulong last = 0, before = 0;
    for (ulong i = begin; i < end; ++i) {
        if (i > begin && parents[i] != parents[i - 1])
            sum = members = 0;
        prediction_t prediction = predict_along(PREVIOUS, a, b, c, last + before);
        const bool has_neighbours = used > 0 && (neighbours[i] & 63);
        const long mean = members > 0 ? sum / members : a;
        if (has_neighbours && is_adaptive) {
            prediction = predict_nearest(values + i, neighbours + i, stride, last + before);
            if (members > 0 && prediction.near == 1)
                prediction.value += (mean - prediction.value) * HALF >> 7;
        } else if (has_neighbours) {
            long total = members > 0 ? mean : 0, terms = members > 0;
            for (uint k = 0; k < used; ++k) {
                const uint offset = neighbours[(ulong)k * stride + i] & 63;
                total += offset ? values[i - offset] : 0;
                terms += offset > 0;
            }
            prediction = predict_nearest(values + i, neighbours + i, stride, last + before);
            prediction.value = total / terms;
        } else {
            prediction.value = mean;
        }
        const long value = prediction.value + code_residual(&coder, &prediction, values[i] - prediction.value);
        values[i] = value;
        c = b;
        b = a;
        a = value;
        before = last;
        last = (ulong)(value > prediction.value ? value - prediction.value : prediction.value - value);
        sum += value;
        ++members;
    }
    CLOSE_CODER(coder, item);
}
