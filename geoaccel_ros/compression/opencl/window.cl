// What the search for neighbours and the coding of values agree on.

// Values of a chunk; its points' neighbours are among themselves.
#define CHUNK 2048
// Points before a point among which its neighbours are; how far back one is has 6 bits.
#define WINDOW 32
// In cells.
#define VERY_NEAR 5
#define NEAR 20
// Neighbours of a point.
#ifndef NEIGHBOURS
#define NEIGHBOURS 3
#endif
