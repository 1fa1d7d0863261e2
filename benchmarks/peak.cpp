// The most that one core of this processor computes and reads, for benchmarks/limit.py: a line of JSON.
//
// Multiply-adds on registers alone, in more chains than it takes to hide their latency, at the width that
// -march=native has; and sums over memory of two sizes, one for the caches and one that no cache holds.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
#elif defined(__AVX__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif
constexpr int CHAINS = WIDTH == 16 ? 24 : 12;

typedef float V __attribute__((vector_size(4 * WIDTH)));

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
static double least(int times, F f) {
    double best = 1e30;
    for (int i = 0; i < times; ++i) {
        const double begun = now();
        f();
        const double took = now() - begun;
        if (took < best) best = took;
    }
    return best;
}

static volatile float kept;

static double multiplied() {
    constexpr int ROUNDS = 1 << 20;
    const double seconds = least(10, [] {
        const V a = V{} + 0.999f, b = V{} + 0.001f;
        V sum[CHAINS];
        for (int k = 0; k < CHAINS; ++k) sum[k] = V{} + float(k);  // or a compiler would find them all the same
        for (int i = 0; i < ROUNDS; ++i)
#pragma GCC unroll 32
            for (int k = 0; k < CHAINS; ++k) sum[k] = sum[k] * a + b;
        for (int k = 1; k < CHAINS; ++k) sum[0] += sum[k];
        kept = sum[0][0];
    });
    return 2.0 * ROUNDS * CHAINS * WIDTH / seconds / 1e9;
}

static double read(size_t bytes, int times) {
    const std::vector<float> memory(bytes / 4, 1.0f);
    const double seconds = least(5, [&] {
        V sum[8] = {};
        for (int t = 0; t < times; ++t)
            for (size_t i = 0; i + 8 * WIDTH <= memory.size(); i += 8 * WIDTH)
#pragma GCC unroll 8
                for (int k = 0; k < 8; ++k) {
                    V v;
                    std::memcpy(&v, memory.data() + i + k * WIDTH, sizeof v);
                    sum[k] += v;
                }
        for (int k = 1; k < 8; ++k) sum[0] += sum[k];
        kept = sum[0][0];
    });
    return double(bytes) * times / seconds / 1e9;
}

int main() {
    std::printf("{\"gflops\": %.1f, \"cache_gb_s\": %.1f, \"memory_gb_s\": %.1f}\n", multiplied(),
                read(size_t(512) << 10, 256), read(size_t(256) << 20, 1));
}
