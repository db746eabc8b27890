// The local map's arrays on the device: those of local_map.py, but for the hash table, which holds the
// keys too.

#pragma once

#include "voxels.cuh"

// Columns of a voxel's row.
constexpr int kCount = 0, kMean = 1, kScatter = 4, kRow = 10;

// What a voxel is, as in local_map.py.
enum Kind : signed char { kNone, kPlane, kLine, kPoint };

struct LocalMap {
    Key* keys;
    double* gaussians;  // x kRow
    double* normals;    // x 3
    double* counts_at_normal;
    Kind* kinds;
    Entry* table;
    int* size;
    double per_metre;   // voxels
    unsigned mask;
    int capacity;
};
