// Nearest neighbour by brute force, the plainest way: a thread a query, which looks at all targets.

extern "C" __global__ void nearest(
    const float* __restrict__ queries,  // 3 x query_count, metres
    int query_count,
    const float* __restrict__ targets,  // 3 x target_count
    int target_count,
    int* __restrict__ matches,
    float* __restrict__ squares)
{
    const int query = blockIdx.x * blockDim.x + threadIdx.x;
    if (query >= query_count) {
        return;
    }
    const float x = queries[query];
    const float y = queries[query_count + query];
    const float z = queries[2 * query_count + query];
    float best = 3.4e38f;
    int match = 0;
    for (int i = 0; i < target_count; ++i) {
        const float dx = targets[i] - x;
        const float dy = targets[target_count + i] - y;
        const float dz = targets[2 * target_count + i] - z;
        const float square = dx * dx + dy * dy + dz * dz;
        if (square < best) {
            best = square;
            match = i;
        }
    }
    matches[query] = match;
    squares[query] = best;
}
