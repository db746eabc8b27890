// A barrier for all blocks of a cooperative launch.

#pragma once

// Wait for all blocks. `barrier` is zero before its first use and is never reset: the first block adds
// what is missing to 2^31, so that all together flip the highest bit, once for each wait.
__device__ inline void wait_for_all(unsigned* barrier)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
        __threadfence();
        const unsigned before = atomicAdd(barrier, share);
        while (((before ^ *static_cast<volatile unsigned*>(barrier)) & 0x80000000u) == 0) {
        }
        __threadfence();
    }
    __syncthreads();
}
