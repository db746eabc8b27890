// What is kept of a list, in the list's order, by all blocks of a cooperative launch: each block counts
// what it keeps of its part, all wait, each starts where the blocks before it end.

#pragma once

// A block's part of `count` elements.
struct Part {
    int begin, end;

    __device__ explicit Part(int count)
    {
        const int size = (count + gridDim.x - 1) / gridDim.x;
        begin = min(count, static_cast<int>(blockIdx.x) * size);
        end = min(count, begin + size);
    }
};

// The sum over a block, known to all of its threads, added up in a fixed order.
template <int threads, typename Number, typename Add>
__device__ inline Number reduce_block(Number value, Number neutral, Add add)
{
    __shared__ Number shared[threads / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        value = add(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = neutral;
    for (int warp = 0; warp < threads / 32; ++warp) {
        value = add(value, shared[warp]);
    }
    return value;
}

template <int threads, typename Number>
__device__ inline Number sum_block(Number value)
{
    return reduce_block<threads>(value, Number(0), [](Number a, Number b) { return a + b; });
}

// The rank of this thread's element among those kept by the block; `kept` becomes how many there are.
template <int threads>
__device__ inline int rank_in_block(bool keep, int& kept)
{
    __shared__ int shared[threads / 32];
    const unsigned votes = __ballot_sync(0xffffffffu, keep);
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32;
    __syncthreads();
    if (lane == 0) {
        shared[own] = __popc(votes);
    }
    __syncthreads();
    int rank = __popc(votes & ((1u << lane) - 1u));
    kept = 0;
    for (int warp = 0; warp < threads / 32; ++warp) {
        rank += warp < own ? shared[warp] : 0;
        kept += shared[warp];
    }
    return rank;
}

// Write how many elements of the block's part are kept into its place in `counts`.
template <int threads, typename Keep>
__device__ inline void count_kept(const Part& part, int* counts, Keep keep)
{
    int kept = 0;
    for (int i = part.begin + threadIdx.x; i < part.end; i += threads) {
        kept += keep(i) ? 1 : 0;
    }
    kept = sum_block<threads>(kept);
    if (threadIdx.x == 0) {
        counts[blockIdx.x] = kept;
    }
}

// Call take(i, its rank among all that are kept) for each kept element of the block's part, once all
// blocks have counted; returns how many there are in all.
template <int threads, typename Keep, typename Take>
__device__ inline int take_kept(const Part& part, const int* counts, Keep keep, Take take)
{
    int before = 0, total = 0;
    for (int block = threadIdx.x; block < gridDim.x; block += threads) {
        before += block < blockIdx.x ? counts[block] : 0;
        total += counts[block];
    }
    before = sum_block<threads>(before);
    total = sum_block<threads>(total);
    for (int first = part.begin; first < part.end; first += threads) {
        const int i = first + threadIdx.x;
        const bool kept = i < part.end && keep(i);
        int here;
        const int rank = rank_in_block<threads>(kept, here);
        if (kept) {
            take(i, before + rank);
        }
        before += here;
    }
    return total;
}
