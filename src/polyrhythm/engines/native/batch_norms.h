// Norms of each channel over all samples of a batch. Part of kernels.cpp, which includes it.
//
// A sum is of every fourth pixel of a row in each lane, then of these four, row by row and block by block; the lanes are
// then folded in halves, in double precision. Idle lanes are in no sum, and what is written to them is zero.

// Which lanes of a register are not idle, in block n.
INLINE I used_of(const Channel& q, int n, int part) {
    I used = ~I{};
    if (n + 1 == q.blocks)
        for (int i = 0; i < WIDTH; ++i) used[i] = part + i < q.last ? -1 : 0;
    return used;
}

// Adds up N numbers of each pixel of a channel, in each lane: f(in, out, used, sums) adds those of a register of pixels.
template <int N, class F>
INLINE void channel_sums(const Channel& q, float* lanes, F f) {
    for (int part = 0; part < LANES; part += WIDTH) {
        V total[N] = {};
        for (int n = 0; n < q.blocks; ++n) {
            const I used = used_of(q, n, part);
            for (int y = 0; y < q.height; ++y) {
                const int64_t in = int64_t(n) * q.in_block + int64_t(y) * q.in_row + part;
                const int64_t out = int64_t(n) * q.out_block + int64_t(y) * q.out_row + part;
                V sum[4][N] = {};
                int x = 0;
                for (; x + 4 <= q.width; x += 4)
                    UNROLL for (int k = 0; k < 4; ++k) f(in + (x + k) * LANES, out + (x + k) * LANES, used, sum[k]);
                for (; x < q.width; ++x) f(in + x * LANES, out + x * LANES, used, sum[0]);
                UNROLL for (int i = 0; i < N; ++i) total[i] += (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
            }
        }
        UNROLL for (int i = 0; i < N; ++i) store(lanes + i * LANES + part, total[i]);
    }
}

// Sets each pixel of a channel to f(in, out), in the map where `row` and `block` are those of its rows and blocks.
template <class F>
INLINE void channel_pixels(const Channel& q, float* to, int row, int block, F f) {
    for (int n = 0; n < q.blocks; ++n)
        for (int part = 0; part < LANES; part += WIDTH) {
            const I used = used_of(q, n, part);
            for (int y = 0; y < q.height; ++y) {
                const int64_t in = int64_t(n) * q.in_block + int64_t(y) * q.in_row + part;
                const int64_t out = int64_t(n) * q.out_block + int64_t(y) * q.out_row + part;
                float* there = to + int64_t(n) * block + int64_t(y) * row + part;
                for (int x = 0; x < q.width; ++x)
                    store(there + x * LANES, where(used, f(in + x * LANES, out + x * LANES)));
            }
        }
}

double wide_sum(const float* lanes) {
    double sum[LANES];
    for (int lane = 0; lane < LANES; ++lane) sum[lane] = lanes[lane];
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
    return sum[0];
}

// The mean, and then the mean square of what lies apart from it.
void batch_moments(const Channel& q, const float* in, double* moments) {
    const double count = double((q.blocks - 1) * LANES + q.last) * q.height * q.width;
    alignas(64) float lanes[LANES];
    channel_sums<1>(q, lanes, [=](int64_t i, int64_t, I used, V (&sum)[1]) { sum[0] += where(used, load(in + i)); });
    moments[0] = wide_sum(lanes) / count;
    const V mean = all(float(moments[0]));
    channel_sums<1>(q, lanes, [=](int64_t i, int64_t, I used, V (&sum)[1]) {
        const V apart = where(used, load(in + i) - mean);
        sum[0] = fused(apart, apart, sum[0]);
    });
    moments[1] = wide_sum(lanes) / count;
}

// out = factor (in - mean) + shift
void batch_norm(const Channel& q, float mean, float factor, float shift, const float* in, float* out) {
    channel_pixels(q, out, q.out_row, q.out_block, [=](int64_t i, int64_t) {
        return fused(load(in + i) - all(mean), all(factor), all(shift));
    });
}

// lanes [2, 16]: the sums of dout (in - mean) by, and of dout.
void batch_norm_sums(const Channel& q, float mean, float by, const float* in, const float* dout, float* lanes) {
    channel_sums<2>(q, lanes, [=](int64_t i, int64_t o, I used, V (&sum)[2]) {
        const V slope = where(used, load(dout + o));
        sum[0] = fused(slope, (load(in + i) - all(mean)) * all(by), sum[0]);
        sum[1] += slope;
    });
}

// din = slope dout + apart (in - mean) + plus
void batch_norm_gradient(const Channel& q, float mean, float slope, float apart, float plus, const float* in,
                         const float* dout, float* din) {
    channel_pixels(q, din, q.in_row, q.in_block, [=](int64_t i, int64_t o) {
        return fused(load(in + i) - all(mean), all(apart), fused(load(dout + o), all(slope), all(plus)));
    });
}
