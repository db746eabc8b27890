// voxels.py's keys and open-addressing hash tables.

#pragma once

typedef unsigned long long Key;

// No voxel has this key.
constexpr Key kEmpty = ~0ULL;
constexpr long long kHalfSpan = 1LL << 20;
constexpr Key kAxisBits = 0x1FFFFF;

__device__ inline Key pack(long long i, long long j, long long k)
{
    return ((i & kAxisBits) << 42) | ((j & kAxisBits) << 21) | (k & kAxisBits);
}

__device__ inline long long cell(double coordinate)
{
    return static_cast<long long>(floor(coordinate)) + kHalfSpan;
}

// The key of the voxel that holds a point, given in voxels.
__device__ inline Key voxel_key(double x, double y, double z)
{
    return pack(cell(x), cell(y), cell(z));
}

__device__ inline unsigned home_slot(Key key, unsigned mask)
{
    return static_cast<unsigned>((key * 0x9E3779B97F4A7C15ULL) >> 32) & mask;
}

// A set of keys, each with the smallest number it was inserted with.
struct FirstTable {
    Key* keys;
    unsigned* firsts;
    unsigned mask;

    // All threads of the launch together.
    __device__ void clear() const
    {
        for (unsigned slot = blockIdx.x * blockDim.x + threadIdx.x; slot <= mask;
             slot += gridDim.x * blockDim.x) {
            keys[slot] = kEmpty;
            firsts[slot] = ~0u;
        }
    }

    // Returns the key's slot.
    __device__ unsigned insert(Key key, unsigned number) const
    {
        unsigned slot = home_slot(key, mask);
        for (;;) {
            const Key found = atomicCAS(keys + slot, kEmpty, key);
            if (found == kEmpty || found == key) {
                atomicMin(firsts + slot, number);
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }
};

// Keys (x) and indices (y), in one load.
typedef longlong2 Entry;

// All threads of the launch together.
__device__ inline void clear(Entry* table, unsigned mask)
{
    for (unsigned slot = blockIdx.x * blockDim.x + threadIdx.x; slot <= mask;
         slot += gridDim.x * blockDim.x) {
        table[slot] = {-1, -1};
    }
}

// Returns the index of a key, -1 where it is absent.
__device__ inline int find(const Entry* table, unsigned mask, Key key)
{
    for (unsigned slot = home_slot(key, mask);; slot = (slot + 1) & mask) {
        const Entry entry = table[slot];
        if (static_cast<Key>(entry.x) == key) {
            return static_cast<int>(entry.y);
        }
        if (static_cast<Key>(entry.x) == kEmpty) {
            return -1;
        }
    }
}

// Insert a key that is absent; others may be inserted at the same time.
__device__ inline void insert(Entry* table, unsigned mask, Key key, int index)
{
    unsigned slot = home_slot(key, mask);
    while (atomicCAS(reinterpret_cast<Key*>(&table[slot].x), kEmpty, key) != kEmpty) {
        slot = (slot + 1) & mask;
    }
    table[slot].y = index;
}
