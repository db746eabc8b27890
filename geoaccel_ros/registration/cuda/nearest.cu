// Exact nearest neighbour by brute force: one thread a query, targets in tiles of shared memory.
//
// Coordinates are float32 relative to a float64 origin that the host subtracted from both clouds.

extern "C" __global__ void nearest(
    const float* __restrict__ queries,   // query_count x 3
    int query_count,
    const float* __restrict__ targets,   // target_count x 3
    int target_count,
    float max_square,                    // matches lie within this squared distance, inclusive
    int* __restrict__ indices,           // query_count; -1 where there is no match
    float* __restrict__ squares)         // query_count; infinity where there is no match
{
    constexpr int kTile = 256;
    __shared__ float tile_x[kTile], tile_y[kTile], tile_z[kTile];

    const int query = blockIdx.x * blockDim.x + threadIdx.x;
    const bool active = query < query_count;
    const float x = active ? queries[3 * query] : 0.0f;
    const float y = active ? queries[3 * query + 1] : 0.0f;
    const float z = active ? queries[3 * query + 2] : 0.0f;

    // NVRTC has no INFINITY: its bits.
    const float infinity = __int_as_float(0x7f800000);
    float best = infinity;
    int best_index = -1;
    for (int start = 0; start < target_count; start += kTile) {
        const int filled = min(kTile, target_count - start);
        for (int i = threadIdx.x; i < filled; i += blockDim.x) {
            tile_x[i] = targets[3 * (start + i)];
            tile_y[i] = targets[3 * (start + i) + 1];
            tile_z[i] = targets[3 * (start + i) + 2];
        }
        __syncthreads();
        for (int i = 0; i < filled; ++i) {
            const float dx = tile_x[i] - x;
            const float dy = tile_y[i] - y;
            const float dz = tile_z[i] - z;
            const float square = dx * dx + dy * dy + dz * dz;
            // Strictly smaller: of equally near points the first wins. False for NaN.
            if (square < best) {
                best = square;
                best_index = start + i;
            }
        }
        __syncthreads();
    }
    if (!active) {
        return;
    }
    const bool matched = best <= max_square;
    indices[query] = matched ? best_index : -1;
    squares[query] = matched ? best : infinity;
}
