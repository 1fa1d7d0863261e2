// Norms of each channel over all samples of a batch. Part of kernels.cpp, which includes it.
//
// A sum is of every fourth pixel of a row in each lane, then of these four, row by row and block by block; the lanes
// are then added up in double precision. Idle lanes are in no sum, and what is written to them is zero.

// Which lanes of a register are not idle, in block n.
INLINE I used_of(const Channel& q, int n, int part) {
    I used = ~I{};
    if (n + 1 == q.blocks)
        for (int i = 0; i < WIDTH; ++i) used[i] = part + i < q.last ? -1 : 0;
    return used;
}

// Adds up N numbers of each pixel of a channel, in each lane: f(in, out, used, sums) adds those of a register.
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

INLINE V normed(const Channel& q, V in) { return fused(in - all(q.mean), all(q.factor), all(q.shift)); }

// The gradient of what a channel's norm gives, from that of what a ReLU leaves of it.
template <bool RELU>
INLINE V slope_of(const Channel& q, V in, V dout) {
    return RELU ? where(~(normed(q, in) <= V{}), dout) : dout;
}

void batch_norm(const Channel& q, const float* in, float* out) {
    const I keep = q.relu ? I{} : ~I{};
    channel_pixels(q, out, q.out_row, q.out_block, [=](int64_t i, int64_t) {
        const V number = normed(q, load(in + i));
        return where(keep | ~(number <= V{}), number);
    });
}

template <bool RELU>
INLINE void batch_norm_sums_by(const Channel& q, const float* in, const float* dout, float* lanes) {
    channel_sums<2>(q, lanes, [=](int64_t i, int64_t o, I used, V (&sum)[2]) {
        const V number = load(in + i), slope = where(used, slope_of<RELU>(q, number, load(dout + o)));
        sum[0] = fused(slope, (number - all(q.mean)) * all(q.by), sum[0]);
        sum[1] += slope;
    });
}

// lanes [2, 16]: the sums of slope u, and of slope.
void batch_norm_sums(const Channel& q, const float* in, const float* dout, float* lanes) {
    if (q.relu) return batch_norm_sums_by<true>(q, in, dout, lanes);
    batch_norm_sums_by<false>(q, in, dout, lanes);
}

template <bool RELU>
INLINE void batch_norm_gradient_by(const Channel& q, float apart, float plus, const float* in, const float* dout,
                                   float* din) {
    channel_pixels(q, din, q.in_row, q.in_block, [=](int64_t i, int64_t o) {
        const V number = load(in + i), slope = slope_of<RELU>(q, number, load(dout + o));
        return fused(number - all(q.mean), all(apart), fused(slope, all(q.factor), all(plus)));
    });
}

// din = factor slope + apart (in - mean) + plus
void batch_norm_gradient(const Channel& q, float apart, float plus, const float* in, const float* dout, float* din) {
    if (q.relu) return batch_norm_gradient_by<true>(q, apart, plus, in, dout, din);
    batch_norm_gradient_by<false>(q, apart, plus, in, dout, din);
}
