// Convolutions of 3 × 3 with stride 1 in squares of 2 × 2 outputs, by Winograd's minimal filtering: 16 products in place of
// 36, of sums of inputs and sums of weights (Lavin and Gray, CVPR 2016, section 4.1). Part of kernels.cpp.
//
// Each of the sixteen is a matrix product over all channels: u [16, rows, channels] times v [16, channels, squares].

constexpr int SIDE = 4, PLACES = SIDE * SIDE;  // of a square's inputs

// Floats from one of the sixteen to the next: no multiple of a page, or all of them would lie in the same few lines of a
// cache.
INLINE int64_t apart_of(int64_t floats) { return floats + LANES; }

// The same from one sample to the next.
INLINE int pitch_of(int floats) { return (floats + LANES - 1) / LANES * LANES + LANES; }

// Of four numbers, B^T d; G g of three; A^T m of four, to two; A y of two; and G^T u of four, to three.
struct Inputs {
    static constexpr int from = 4, to = 4;
    template <class T>
    INLINE static void turn(const T (&d)[4], T (&out)[4]) {
        out[0] = d[0] - d[2], out[1] = d[1] + d[2], out[2] = d[2] - d[1], out[3] = d[1] - d[3];
    }
};
struct Weights {
    static constexpr int from = 3, to = 4;
    template <class T>
    INLINE static void turn(const T (&g)[3], T (&out)[4]) {
        const T outer = g[0] + g[2];
        out[0] = g[0], out[1] = (outer + g[1]) * 0.5f, out[2] = (outer - g[1]) * 0.5f, out[3] = g[2];
    }
};
struct Outputs {
    static constexpr int from = 4, to = 2;
    template <class T>
    INLINE static void turn(const T (&m)[4], T (&out)[2]) {
        out[0] = (m[0] + m[1]) + m[2], out[1] = (m[1] - m[2]) - m[3];
    }
};
struct OutputsBack {
    static constexpr int from = 2, to = 4;
    template <class T>
    INLINE static void turn(const T (&y)[2], T (&out)[4]) {
        out[0] = y[0], out[1] = y[0] + y[1], out[2] = y[0] - y[1], out[3] = -y[1];
    }
};
struct WeightsBack {
    static constexpr int from = 4, to = 3;
    template <class T>
    INLINE static void turn(const T (&u)[4], T (&out)[3]) {
        const T sum = (u[1] + u[2]) * 0.5f;
        out[0] = u[0] + sum, out[1] = (u[1] - u[2]) * 0.5f, out[2] = sum + u[3];
    }
};

// A square by such a matrix from both sides: get(row, column) of what is turned, put(row, column, number) of what becomes
// of it.
template <class By, class Get, class Put>
INLINE void turned(Get get, Put put) {
    V half[By::to][By::from];
    UNROLL for (int x = 0; x < By::from; ++x) {
        V column[By::from], out[By::to];
        UNROLL for (int y = 0; y < By::from; ++y) column[y] = get(y, x);
        By::turn(column, out);
        UNROLL for (int y = 0; y < By::to; ++y) half[y][x] = out[y];
    }
    UNROLL for (int y = 0; y < By::to; ++y) {
        V out[By::to];
        By::turn(half[y], out);
        UNROLL for (int x = 0; x < By::to; ++x) put(y, x, out[x]);
    }
}

// Calls f(lanes, numbers, use) for each register of some squares of a channel: where it lies in the blocks and among those
// side by side, and which of its lanes are not idle; those that are idle as a whole are left out. Whole registers are
// written, in an order in which what was written beyond a square is overwritten by the next.
template <class F>
INLINE void registers(const Squares& q, int block, int squares, F f) {
    const int last = q.count - (q.blocks - 1) * LANES, parts = (last + WIDTH - 1) / WIDTH;
    I used[PARTS];
    for (int part = 0; part < PARTS; ++part)
        for (int i = 0; i < WIDTH; ++i) used[part][i] = part * WIDTH + i < last ? -1 : 0;
    for (int s = 0; s < squares; ++s)
        for (int n = 0; n < q.blocks; ++n)
            for (int part = 0; part < (n + 1 < q.blocks ? PARTS : parts); ++part)
                f(s, int64_t(n) * block + part * WIDTH, int64_t(s) * q.count + n * LANES + part * WIDTH,
                  n + 1 < q.blocks ? ~I{} : used[part]);
}

// v [16, channels, squares] of some squares, whose inputs lie at look [squares, 16], those beside the image at −1.
INLINE void squares_of(
    const Squares& q, const float* from, int channels, int plane, int block, const int* look, int squares, float* v) {
    const int64_t apart = apart_of(int64_t(channels) * q.line);
    for (int c = 0; c < channels; ++c, from += plane, v += q.line)
        registers(q, block, squares, [&](int s, int64_t lanes, int64_t numbers, I) {
            const int* here = look + s * PLACES;
            turned<Inputs>(
                [&](int y, int x) {
                    const int at = here[y * SIDE + x];
                    return at < 0 ? V{} : load(from + at + lanes);
                },
                [&](int y, int x, V number) { store(v + (y * SIDE + x) * apart + numbers, number); });
        });
}

// Registers that so many squares fill.
INLINE int filled(const Squares& q, int squares) { return (squares * q.count + WIDTH - 1) / WIDTH; }

// m[place] = u[place] times v[place]: of each, left[row * down + k * step] is a number of u.
INLINE void squares_by(const Squares& q, const float* left, int64_t down, int64_t step, int rows, int depth, const float* v,
                       int squares, float* m) {
    const int64_t line = q.line;
    tiled(rows, filled(q, squares), [&](int row, auto tall, int piece, auto across) {
        constexpr int R = tall.value, C = across.value;
        const float* from[C];
        V sum[R][C];
        clear(sum);
        UNROLL for (int c = 0; c < C; ++c) from[c] = v + (piece + c) * WIDTH;
        tile<R, C>(left + row * down, down, step, depth, from, [=](int k) { return k * line; }, sum);
        UNROLL for (int r = 0; r < R; ++r)
            UNROLL for (int c = 0; c < C; ++c) store(m + (row + r) * line + (piece + c) * WIDTH, sum[r][c]);
    });
}

// What becomes of m [16, rows, squares]: outputs, at place [squares, 4].
template <bool MORE = false>
INLINE void squares_to(const Squares& q, const float* m, int rows, int plane, int block, const int* place, int squares,
                       const float* bias, float* out) {
    const int64_t apart = apart_of(int64_t(rows) * q.line);
    for (int row = 0; row < rows; ++row, out += plane, m += q.line) {
        registers(q, block, squares, [&](int s, int64_t lanes, int64_t numbers, I use) {
            turned<Outputs>(
                [&](int y, int x) { return load(m + (y * SIDE + x) * apart + numbers); },
                [&](int y, int x, V number) {
                    number = where(use, bias ? number + all(bias[row]) : number);
                    float* to = out + place[s * 4 + y * 2 + x] + lanes;
                    store(to, MORE ? load(to) + number : number);
                });
        });
        // Registers that are idle as a whole hold zeros, as do all gradients there.
        for (int lane = (q.count - 1) / WIDTH % PARTS * WIDTH + WIDTH; lane < LANES && !MORE; lane += WIDTH)
            for (int i = 0; i < 4 * squares; ++i) store(out + place[i] + (q.blocks - 1) * int64_t(block) + lane, V{});
    }
}

// u of some weights [rows, channels, 3, 3], sixteen channels at a time.
void squares_weights(const Squares& q, const float* weights, float* u) {
    const int64_t size = int64_t(q.rows) * q.channels, apart = apart_of(size);
    alignas(64) float g[9][LANES];
    for (int64_t first = 0; first < size; first += LANES) {
        const int here = size - first < LANES ? int(size - first) : LANES;
        for (int i = 0; i < here; ++i)
            for (int k = 0; k < 9; ++k) g[k][i] = weights[(first + i) * 9 + k];
        for (int part = 0; part < here; part += WIDTH)
            turned<Weights>([&](int y, int x) { return load(g[y * 3 + x] + part); },
                            [&](int y, int x, V number) {
                                float* to = u + (y * SIDE + x) * apart + first + part;
                                if (here - part >= WIDTH)
                                    store(to, number);
                                else
                                    std::memcpy(to, &number, 4 * (here - part));
                            });
    }
}

// Calls f(first, some) for some of all squares after the others.
template <class F>
INLINE void some_squares(int all, int together, F f) {
    for (int first = 0; first < all; first += together) f(first, all - first < together ? all - first : together);
}

void squares_forward(const Squares& q, const float* u, const float* bias, const float* in, float* out) {
    const int64_t apart = apart_of(int64_t(q.rows) * q.channels), line = q.line;
    const int64_t in_apart = apart_of(q.channels * line), out_apart = apart_of(q.rows * line);
    some_squares(q.squares, q.together, [&](int first, int squares) {
        squares_of(q, in, q.channels, q.in_plane, q.in_block, q.look + first * PLACES, squares, q.v);
        for (int k = 0; k < PLACES; ++k)
            squares_by(q, u + k * apart, q.channels, 1, q.rows, q.channels, q.v + k * in_apart, squares,
                       q.m + k * out_apart);
        squares_to(q, q.m, q.rows, q.out_plane, q.out_block, q.place + first * 4, squares, bias, out);
    });
}

// A convolution as well, of the outputs' gradient with weights turned round: their sums are the same in another order.
void squares_input_gradient(const Squares& q, const float* u, const float* dout, float* din) {
    constexpr int other[SIDE] = {3, 1, 2, 0};
    const int64_t size = int64_t(q.rows) * q.channels, apart = apart_of(size), line = q.line;
    const int64_t in_apart = apart_of(q.channels * line), out_apart = apart_of(q.rows * line);
    some_squares(q.back, q.together, [&](int first, int squares) {
        squares_of(q, dout, q.rows, q.out_plane, q.out_block, q.look_back + first * PLACES, squares, q.m);
        for (int k = 0; k < PLACES; ++k)
            squares_by(q, u + (other[k / SIDE] * SIDE + other[k % SIDE]) * apart, 1, q.channels, q.channels, q.rows,
                       q.m + k * out_apart, squares, q.v + k * in_apart);
        const auto to = q.more ? squares_to<true> : squares_to<false>;
        to(q, q.v, q.channels, q.in_plane, q.in_block, q.place_back + first * 4, squares, nullptr, din);
    });
}

// What one of the sixteen gives of the gradient of u, [rows, channels]: registers run along the channels.
void squares_sums(const Squares& q, const float* v, const float* m, int squares, bool more, float* u) {
    const int pieces = (q.channels + WIDTH - 1) / WIDTH, pitch = pitch_of(q.channels), depth = squares * q.count;
    for (int j = 0; j < depth; j += LANES)
        to_rows(v + j, q.begin, q.channels, q.samples + int64_t(j) * pitch, pitch);
    for (int row = 0; row < q.rows; row += ROWS)
        for (int piece = 0; piece < pieces; piece += WIDE)
            with_size<ROWS>(q.rows - row, [&](auto rows) {
                with_size<WIDE>(pieces - piece, [&](auto across) {
                    constexpr int R = rows.value, C = across.value;
                    const float* from[C];
                    V sum[R][C];
                    clear(sum);
                    UNROLL for (int c = 0; c < C; ++c) from[c] = q.samples + (piece + c) * WIDTH;
                    tile<R, C>(m + int64_t(row) * q.line, q.line, 1, depth, from,
                               [=](int j) { return int64_t(j) * pitch; }, sum);
                    float* to = u + int64_t(row) * q.channels;
                    if (more) added_to<R, C>(to, q.channels, piece, sum);
                    rows_to<R, C>(to, q.channels, piece, sum);
                });
            });
}

// The gradient of weights from that of u.
void squares_weights_back(const Squares& q, const float* u, float* dweights) {
    const int64_t size = int64_t(q.rows) * q.channels, apart = apart_of(size);
    alignas(64) float g[9][LANES];
    for (int64_t begin = 0; begin < size; begin += LANES) {
        const int here = size - begin < LANES ? int(size - begin) : LANES;
        for (int part = 0; part < here; part += WIDTH)
            turned<WeightsBack>(
                [&](int y, int x) { return load(u + (y * SIDE + x) * apart + begin + part); },
                [&](int y, int x, V number) { store(g[y * 3 + x] + part, number); });
        for (int i = 0; i < here; ++i)
            for (int k = 0; k < 9; ++k) dweights[(begin + i) * 9 + k] = g[k][i];
    }
}

// The gradient of weights; `u` is room.
void squares_weight_gradient(const Squares& q, const float* in, const float* dout, float* u, float* dweights) {
    const int64_t apart = apart_of(int64_t(q.rows) * q.channels), line = q.line;
    const int64_t in_apart = apart_of(q.channels * line), out_apart = apart_of(q.rows * line);
    some_squares(q.squares, q.together, [&](int first, int squares) {
        squares_of(q, in, q.channels, q.in_plane, q.in_block, q.look + first * PLACES, squares, q.v);
        for (int row = 0; row < q.rows; ++row)
            registers(q, q.out_block, squares, [&](int s, int64_t lanes, int64_t numbers, I) {
                const float* from = dout + int64_t(row) * q.out_plane + lanes;
                float* to = q.m + row * line + numbers;
                turned<OutputsBack>(
                    [&](int y, int x) { return load(from + q.place[(first + s) * 4 + y * 2 + x]); },
                    [&](int y, int x, V number) { store(to + (y * SIDE + x) * out_apart, number); });
            });
        for (int k = 0; k < PLACES; ++k)
            squares_sums(q, q.v + k * in_apart, q.m + k * out_apart, squares, first > 0, u + k * apart);
    });
    squares_weights_back(q, u, dweights);
}
