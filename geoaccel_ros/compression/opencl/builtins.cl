// To PoCL the functions of OpenCL are calls, which cost more than what they do and keep a loop over work-items from
// being vectorised. These are not; their arguments have no side effects.
#ifdef POCL_DEVICE_ADDRESS_BITS
#undef min
#undef max
#undef clamp
#undef abs
#undef clz
#undef popcount
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define clamp(v, low, high) ((v) < (low) ? (low) : (v) > (high) ? (high) : (v))
#define abs(v) ((v) < 0 ? -(v) : (v))
#define clz(v) (sizeof(v) == 8 ? (v) ? __builtin_clzl(v) : 64 : (v) ? __builtin_clz((uint)(v)) : 32)
// Of 32 bits.
#define popcount(v) ((uint)__builtin_popcount(v))
#ifdef USE_FP64
#undef sqrt
#undef rint
#define sqrt(v) __builtin_sqrt(v)
#define rint(v) __builtin_rint(v)
#endif
#define INLINE __attribute__((always_inline))
#else
#define INLINE
#endif
