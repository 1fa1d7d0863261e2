// Standard normal numbers, to the bits of NumPy's `Generator(PCG64).standard_normal`.
#pragma once
#include <cstdint>

// Whether this compiler has what the generator takes: whole numbers of 128 bits.
#ifdef __SIZEOF_INT128__
#define POLYRHYTHM_NORMALS
#endif

// `Generator(PCG64(seed)).standard_normal(size)`, for a seed of 128 bits.
void normals(double* out, int64_t size, uint64_t seed_high, uint64_t seed_low);
void normals(float* out, int64_t size, uint64_t seed_high, uint64_t seed_low);
