// Convolutions whose columns do not all look at the same taps, and packed ones. Part of kernels.cpp, which includes it.

constexpr int MANY = 5;  // columns of a tap, for which it pays to lay out weights anew

// Calls f(lanes, numbers, use) for each register of each pixel, in the order of spots: where it lies in the blocks and
// packed, and which of its lanes are not idle.
template <class F>
INLINE void packed_by(const Pack& p, F f) {
    I used[PARTS];
    for (int part = 0; part < PARTS; ++part)
        for (int i = 0; i < WIDTH; ++i) used[part][i] = part * WIDTH + i < p.last ? -1 : 0;
    for (int c = 0; c < p.channels; ++c)
        for (int i = 0; i < p.pixels; ++i) {
            const int64_t lane = int64_t(c) * p.from_lane + p.lane[i], spot = int64_t(c) * p.from_spot + p.spot[i];
            for (int n = 0; n < p.blocks; ++n)
                for (int part = 0; part < PARTS; ++part)
                    f(int64_t(n) * p.block + lane + part * WIDTH, spot + n * LANES + part * WIDTH,
                      n + 1 < p.blocks ? ~I{} : used[part]);
        }
}

void pack(const Pack& p, const float* blocks, float* packed) {
    packed_by(p, [=](int64_t lane, int64_t spot, I use) { store(packed + spot, where(use, load(blocks + lane))); });
}

void unpack(const Pack& p, const float* packed, float* blocks) {
    packed_by(p, [=](int64_t lane, int64_t spot, I use) { store(blocks + lane, where(use, load(packed + spot))); });
}

// Register `piece` of some columns.
INLINE int at(const int* column, const int* some, int piece) {
    return column[some[piece / PARTS]] + piece % PARTS * WIDTH;
}

// Calls f(row, rows, piece, across) for each tile of `rows` times `pieces` sums, with sizes as constants: tiles are tall
// where there are too few pieces to fill wide ones.
template <class F>
INLINE void tiled(int rows, int pieces, F f) {
    const auto by = [&](auto most, auto wide) {
        tiles<most.value, wide.value>(rows, pieces, [&](int row, int piece) {
            with_size<most.value>(rows - row, [&](auto tall) {
                with_size<wide.value>(pieces - piece, [&](auto across) { f(row, tall, piece, across); });
            });
        });
    };
    if (WIDE > 2 && pieces <= 2)
        by(Size<TALL>{}, Size<2>{});
    else
        by(Size<ROWS>{}, Size<WIDE>{});
}

// As `forward`, of the taps that are looked at.
void sparse_forward(
    const Product& p, const Sparse& s, const float* weights, const float* bias, const float* in, float* out) {
    for (int kind = 0; kind < s.kinds; ++kind) {
        const int *member = s.member + s.members[kind], *look = s.look + s.looks[kind], *there = s.at + s.looks[kind];
        const int members = s.members[kind + 1] - s.members[kind], depth = s.looks[kind + 1] - s.looks[kind];
        tiled(p.rows, members * PARTS,
              [&](int row, auto rows, int piece, auto across) {
                  constexpr int R = rows.value, C = across.value;
                  const float *from[C], *left = weights + int64_t(row) * p.taps;
                  V sum[R][C];
                  UNROLL for (int c = 0; c < C; ++c) from[c] = in + at(p.column, member, piece + c);
                  UNROLL for (int r = 0; r < R; ++r)
                      UNROLL for (int c = 0; c < C; ++c) sum[r][c] = all(bias ? bias[row + r] : 0.0f);
                  for (int k = 0; k < depth; ++k) {
                      V b[C];
                      const float* here = left + look[k];
                      UNROLL for (int c = 0; c < C; ++c) b[c] = load(from[c] + there[k]);
                      UNROLL for (int r = 0; r < R; ++r) {
                          const V a = all(here[r * int64_t(p.taps)]);
                          UNROLL for (int c = 0; c < C; ++c) sum[r][c] = fused(a, b[c], sum[r][c]);
                      }
                  }
                  UNROLL for (int c = 0; c < C; ++c) {
                      float* to = out + at(p.place, member, piece + c) + int64_t(row) * p.plane;
                      UNROLL for (int r = 0; r < R; ++r) store(to + r * int64_t(p.plane), sum[r][c]);
                  }
              });
    }
}

// As `input_gradient`, of packed numbers: a tile is of channels that look through one place of the window. So what is
// added to in turn does not overlap, as neighbours in a window do where samples are fewer than lanes. A number is added up
// place by place of the window, in order.
void packed_input_gradient(const Product& p, int channels, const float* weights, const float* dout, float* din) {
    const int window = p.taps / channels, pieces = p.columns * PARTS;
    const int64_t plane = p.plane, channel = channels > 1 ? p.tap[window] - p.tap[0] : 0;
    for (int row = 0; row < channels; row += ROWS)
        for (int tap = 0; tap < window; ++tap)
            for (int piece = 0; piece < pieces; piece += WIDE)
                with_size<ROWS>(channels - row, [&](auto rows) {
                    with_size<WIDE>(pieces - piece, [&](auto across) {
                        constexpr int R = rows.value, C = across.value;
                        const float* from[C];
                        V sum[R][C] = {};
                        UNROLL for (int c = 0; c < C; ++c) from[c] = dout + at(p.place, piece + c);
                        tile<R, C>(weights + int64_t(row) * window + tap, window, p.taps, p.rows, from,
                                   [=](int o) { return o * plane; }, sum);
                        UNROLL for (int c = 0; c < C; ++c) {
                            float* to = din + at(p.column, piece + c) + p.tap[tap] + row * channel;
                            UNROLL for (int r = 0; r < R; ++r) store(to + r * channel, load(to + r * channel) + sum[r][c]);
                        }
                    });
                });
}

// As `input_gradient`: here a number is added up tap by tap, in order. Where many columns look at a tap, the weights of a
// few channels are first laid out as they are read, since they lie far apart.
void sparse_input_gradient(const Product& p, const Sparse& s, const float* weights, const float* dout, float* din) {
    const int64_t plane = p.plane, channel = s.channels > 1 ? p.tap[s.window] - p.tap[0] : 0;
    const bool laid_out = s.seen[s.window] >= MANY * s.window;
    for (int begin = 0; begin < s.channels; begin += TALL) {
        const int channels = s.channels - begin < TALL ? s.channels - begin : TALL;
        const float* from_here = weights + int64_t(begin) * s.window;
        if (laid_out)
            for (int o = 0; o < p.rows; ++o)
                for (int r = 0; r < channels; ++r)
                    for (int tap = 0; tap < s.window; ++tap)
                        s.panel[(int64_t(tap) * p.rows + o) * TALL + r] = from_here[o * int64_t(p.taps) + r * s.window + tap];
        for (int tap = 0; tap < s.window; ++tap) {
            const int* run = s.run + s.seen[tap];
            const float* left = laid_out ? s.panel + int64_t(tap) * p.rows * TALL : from_here + tap;
            const int64_t next = laid_out ? 1 : s.window, step = laid_out ? TALL : p.taps;
            tiled(channels, (s.seen[tap + 1] - s.seen[tap]) * PARTS, [&](int row, auto rows, int piece, auto across) {
                constexpr int R = rows.value, C = across.value;
                const float* from[C];
                V sum[R][C] = {};
                UNROLL for (int c = 0; c < C; ++c) from[c] = dout + at(p.place, run, piece + c);
                tile<R, C>(left + row * next, next, step, p.rows, from, [=](int o) { return o * plane; }, sum);
                UNROLL for (int c = 0; c < C; ++c) {
                    float* to = din + at(p.column, run, piece + c) + p.tap[tap] + (begin + row) * channel;
                    UNROLL for (int r = 0; r < R; ++r) store(to + r * channel, load(to + r * channel) + sum[r][c]);
                }
            });
        }
    }
}

// The sums of the lanes of four registers, each to the bits of `folded`, `apart` floats from one to the next.
template <class Lanes>
INLINE void folded_to(float* to, int64_t apart, const Lanes& sum) {
#if defined(__AVX512F__)
#define QUARTERS(v, w, a, b, c, d) \
    __builtin_shufflevector(v, w, 4 * a, 4 * a + 1, 4 * a + 2, 4 * a + 3, 4 * b, 4 * b + 1, 4 * b + 2, 4 * b + 3, \
                            4 * c, 4 * c + 1, 4 * c + 2, 4 * c + 3, 4 * d, 4 * d + 1, 4 * d + 2, 4 * d + 3)
    const V one = QUARTERS(sum[0], sum[1], 0, 1, 4, 5) + QUARTERS(sum[0], sum[1], 2, 3, 6, 7);
    const V two = QUARTERS(sum[2], sum[3], 0, 1, 4, 5) + QUARTERS(sum[2], sum[3], 2, 3, 6, 7);
    V four = QUARTERS(one, two, 0, 2, 4, 6) + QUARTERS(one, two, 1, 3, 5, 7);
#undef QUARTERS
    four += __builtin_shufflevector(four, four, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    four += __builtin_shufflevector(four, four, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    alignas(64) float found[LANES];
    store(found, four);
    UNROLL for (int i = 0; i < 4; ++i) to[i * apart] = found[4 * i];
#else
    (void)to, (void)apart, (void)sum;
#endif
}

// As `weight_gradient`: what is left out is zero.
void sparse_weight_gradient(const Product& p, const Sparse& s, const float* in, const float* dout, float* dweights) {
    for (int row = 0; row < p.rows; row += ROWS)
        for (int channel = 0; channel < s.channels; channel += WIDE)
            with_size<ROWS>(p.rows - row, [&](auto rows) {
                with_size<WIDE>(s.channels - channel, [&](auto channels) {
                    constexpr int R = rows.value, C = channels.value;
                    for (int tap = 0; tap < s.window; ++tap) {
                        alignas(64) float lane[R][C][LANES];
                        float* to = dweights + int64_t(row) * p.taps + channel * s.window + tap;
                        const int *run = s.run + s.seen[tap], *end = s.run + s.seen[tap + 1];
                        for (int part = 0; part < LANES; part += WIDTH) {
                            V sum[R][C] = {};
                            const float *from[C], *left = dout + int64_t(row) * p.plane + part;
                            UNROLL for (int c = 0; c < C; ++c)
                                from[c] = in + p.tap[(channel + c) * s.window + tap] + part;
                            for (const int* j = run; j < end; ++j) {
                                V b[C];
                                UNROLL for (int c = 0; c < C; ++c) b[c] = load(from[c] + p.column[*j]);
                                UNROLL for (int r = 0; r < R; ++r) {
                                    const V a = load(left + r * int64_t(p.plane) + p.place[*j]);
                                    UNROLL for (int c = 0; c < C; ++c) sum[r][c] = fused(a, b[c], sum[r][c]);
                                }
                            }
                            if constexpr (WIDTH == LANES && C == 4)
                                UNROLL for (int r = 0; r < R; ++r) folded_to(to + r * int64_t(p.taps), s.window, sum[r]);
                            else
                                UNROLL for (int r = 0; r < R; ++r)
                                    UNROLL for (int c = 0; c < C; ++c) store(lane[r][c] + part, sum[r][c]);
                        }
                        if constexpr (WIDTH != LANES || C != 4)
                            UNROLL for (int r = 0; r < R; ++r)
                                UNROLL for (int c = 0; c < C; ++c)
                                    to[r * int64_t(p.taps) + c * s.window] = folded(lane[r][c]);
                    }
                });
            });
}
