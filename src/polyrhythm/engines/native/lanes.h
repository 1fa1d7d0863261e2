// One register of floats, whatever the processor has: 16 (AVX-512), 8 (AVX2) or 4 (NEON, SSE) of them.
//
// Only what is written as `fused` is fused: the compiler is told not to contract a * b + c (-ffp-contract=off), so
// a number does not depend on what an optimiser made of a line. AVX-512, AVX2 and NEON all fuse and give equal bits;
// an x86 processor without FMA, older than 2013, rounds twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

// Each instruction set compiles this file anew; without a name of its own the linker would keep one copy for all.
namespace {

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif

typedef float V __attribute__((vector_size(4 * WIDTH)));
typedef int32_t I __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t U __attribute__((vector_size(4 * WIDTH)));

inline V load(const float* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline void store(float* to, V v) { std::memcpy(to, &v, sizeof v); }

// Less zero, which changes no bit, so that a compiler leaves it out; an addition would turn -0 into 0.
inline V all(float x) { return x - V{}; }

// a * b + c, rounded once.
inline V fused(V a, V b, V c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

inline U bits(V v) {
    U u;
    std::memcpy(&u, &v, sizeof u);
    return u;
}

inline V from_bits(U u) {
    V v;
    std::memcpy(&v, &u, sizeof v);
    return v;
}

// v where `keep` is true (all ones), else 0. A NaN in v stays one.
inline V where(I keep, V v) { return from_bits(bits(v) & U(keep)); }

inline V choose(I which, V yes, V no) { return from_bits((bits(yes) & U(which)) | (bits(no) & ~U(which))); }

// e**x to about one unit in the last place, for x <= 0: x = n ln 2 + r, e**x = 2**n e**r. Below -87 it gives 0.
inline V exponential(V x) {
    const I vanishes = x < all(-87.0f);
    x = choose(vanishes, all(-87.0f), x);
    const float magic = 12582912.0f;  // 1.5 * 2**23: adding it rounds to a whole number, kept in the low bits
    const V shifted = fused(x, all(1.44269504f), all(magic));
    const V n = shifted - all(magic);
    V r = fused(n, all(-0.693359375f), x);  // ln 2 in two parts, so that r loses nothing
    r = fused(n, all(2.12194440e-4f), r);
    V p = all(1.9875691500e-4f);
    p = fused(p, r, all(1.3981999507e-3f));
    p = fused(p, r, all(8.3334519073e-3f));
    p = fused(p, r, all(4.1665795894e-2f));
    p = fused(p, r, all(1.6666665459e-1f));
    p = fused(p, r, all(5.0000001201e-1f));
    p = fused(p * r, r, r) + all(1.0f);
    const U power = bits(shifted) << 23;  // n's low bits, moved into the exponent
    return where(~vanishes, from_bits(bits(p) + power));
}

inline V size_of(V v) { return from_bits(bits(v) & 0x7fffffffU); }

inline V sigmoid(V x) {
    const V e = exponential(-size_of(x)), p = all(1.0f) / (all(1.0f) + e);
    return choose(x < V{}, e * p, p);
}

// Near zero a polynomial (Cephes), as the quotient of exponentials would lose what is small there.
inline V tangent(V x) {
    const V size = size_of(x), z = x * x;
    V p = all(-5.70498872745e-3f);
    p = fused(p, z, all(2.06390887954e-2f));
    p = fused(p, z, all(-5.37397155531e-2f));
    p = fused(p, z, all(1.33314422036e-1f));
    p = fused(p, z, all(-3.33332819422e-1f));
    const V near = fused(p * z, x, x), e = exponential(all(-2.0f) * size);
    const V far = (all(1.0f) - e) / (all(1.0f) + e);
    return choose(size < all(0.625f), near, choose(x < V{}, -far, far));
}

}  // namespace
