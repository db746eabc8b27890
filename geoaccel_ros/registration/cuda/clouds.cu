// Clouds in the order along a Z-curve.

// As in morton.py.
constexpr float kCells = 1024.0f;

// Keys that sort points along a Z-curve, and equal ones by index.
extern "C" __global__ void __launch_bounds__(256) morton_keys(
    const float* __restrict__ points,  // 3 x count
    int count,
    float reach,                       // half the edge of the cube that the curve fills
    unsigned long long* __restrict__ keys)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) {
        return;
    }
    const float cells_per_metre = reach > 0.0f ? kCells / (2.0f * reach) : 0.0f;
    unsigned key = 0;
    for (int axis = 0; axis < 3; ++axis) {
        const float place = (points[axis * count + i] + reach) * cells_per_metre;
        unsigned cell = static_cast<unsigned>(fminf(fmaxf(place, 0.0f), kCells - 1.0f));
        // Bit k to place 3 k.
        cell = (cell | cell << 16) & 0x30000ffu;
        cell = (cell | cell << 8) & 0x300f00fu;
        cell = (cell | cell << 4) & 0x30c30c3u;
        cell = (cell | cell << 2) & 0x9249249u;
        key |= cell << axis;
    }
    keys[i] = static_cast<unsigned long long>(key) << 32 | static_cast<unsigned>(i);
}

// Points in the order of their sorted keys.
extern "C" __global__ void __launch_bounds__(256) gather(
    const float* __restrict__ points,
    int count,
    const unsigned long long* __restrict__ keys,
    float* __restrict__ sorted)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) {
        return;
    }
    const int from = static_cast<int>(keys[i] & 0xffffffffu);
    for (int axis = 0; axis < 3; ++axis) {
        sorted[axis * count + i] = points[axis * count + from];
    }
}
