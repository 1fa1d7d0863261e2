// The way of an LSTM along a sequence, and back. Part of kernels.cpp, which includes it.

// For each unit of each block, whose registers these are: f(numbers of a unit, from one block's pixel on).
template <class F>
INLINE void units(const Recurrence& r, F f) {
    for (int n = 0; n < r.blocks; ++n)
        for (int unit = 0; unit < r.hidden; ++unit)
            for (int part = 0; part < LANES; part += WIDTH) f(n, unit * LANES + part);
}

// to[row] += bias[row] + sum over k of left[row, k] * right[k], of one pixel of each block; there `right_apart` and `apart`
// floats lie between two blocks. `left` is in panels; without `right` the bias alone is added.
INLINE void added(const float* left, int rows, int depth, const float* right, int64_t right_apart, const float* bias,
                  float* to, int64_t apart, int blocks) {
    tiled(rows, blocks * PARTS, [&](int row, auto tall, int piece, auto across) {
        constexpr int R = tall.value, C = across.value;
        const float* from[C];
        float* here[C];
        V sum[R][C];
        UNROLL for (int c = 0; c < C; ++c) {
            const int block = (piece + c) / PARTS, part = (piece + c) % PARTS * WIDTH;
            from[c] = right ? right + block * right_apart + part : nullptr;
            here[c] = to + block * apart + int64_t(row) * LANES + part;
        }
        UNROLL for (int r = 0; r < R; ++r)
            UNROLL for (int c = 0; c < C; ++c) {
                sum[r][c] = load(here[c] + r * LANES);
                if (bias) sum[r][c] += all(bias[row + r]);
            }
        const float* panel = left + int64_t(row / TALL) * depth * TALL + row % TALL;
        if (right) tile<R, C>(panel, 1, TALL, depth, from, [](int k) { return k * LANES; }, sum);
        UNROLL for (int c = 0; c < C; ++c)
            UNROLL for (int r = 0; r < R; ++r) store(here[c] + r * LANES, sum[r][c]);
    });
}

// Weights [rows, depth] as they are read along a sequence: of TALL rows the first column, then the second, and so on. The
// number of row r and column k lies at from[r * row + k * column].
void panels(const float* from, int rows, int depth, int64_t row, int64_t column, float* to) {
    for (int first = 0; first < rows; first += TALL)
        for (int k = 0; k < depth; ++k, to += TALL)
            for (int r = 0; r < TALL; ++r) to[r] = first + r < rows ? from[(first + r) * row + k * column] : 0.0f;
}

// As `weight_gradient`, from inputs sample by sample, [columns, LANES, pitch]: of a column the lanes below `count` or, in
// the last block, below `last` are added, so idle lanes cost nothing and nothing needs to be folded.
void sample_gradient(
    const Product& p, const float* samples, int pitch, const float* dout, int blocks, int last, float* dweights) {
    const int pieces = (p.taps + WIDTH - 1) / WIDTH, columns = blocks * p.columns, whole = (blocks - 1) * p.columns;
    for (int row = 0; row < p.rows; row += ROWS)
        for (int piece = 0; piece < pieces; piece += WIDE)
            with_size<ROWS>(p.rows - row, [&](auto rows) {
                with_size<WIDE>(pieces - piece, [&](auto across) {
                    constexpr int R = rows.value, C = across.value;
                    V sum[R][C] = {};
                    for (int j = 0; j < columns; ++j) {
                        const float* from[C];
                        UNROLL for (int c = 0; c < C; ++c)
                            from[c] = samples + int64_t(j) * LANES * pitch + (piece + c) * WIDTH;
                        tile<R, C>(dout + p.place[j] + int64_t(row) * p.plane, p.plane, 1, j < whole ? LANES : last,
                                   from, [=](int k) { return int64_t(k) * pitch; }, sum);
                    }
                    rows_to<R, C>(dweights + int64_t(row) * p.taps, p.taps, piece, sum);
                });
            });
}

// `weights` are in panels. gates [blocks, steps, 4 hidden] hold what the inputs give, and then the gates; cells [blocks, steps, 2 hidden] get the
// cells and their tangents, and states [blocks, steps, hidden] what the next pixel and the next layer read.
void recurrence(
    const Recurrence& r, const float* weights, const float* bias, float* gates, float* cells, float* states) {
    const int64_t state = int64_t(r.hidden) * LANES, cell = 2 * state, gate = 4 * state;
    for (int t = 0; t < r.steps; ++t) {
        float *g = gates + t * gate, *c = cells + t * cell, *h = states + t * state;
        const float* before = t ? h - state : nullptr;
        added(weights, 4 * r.hidden, r.hidden, before, state * r.steps, bias, g, gate * r.steps, r.blocks);
        units(r, [=](int n, int at) {
            float* here = g + n * gate * r.steps + at;
            float* kept = c + n * cell * r.steps + at;
            const V input = sigmoid(load(here)), forget = sigmoid(load(here + state));
            const V fresh = tangent(load(here + 2 * state)), output = sigmoid(load(here + 3 * state));
            const V old = t ? load(kept - cell) : V{};
            const V now = fused(forget, old, input * fresh), shown = tangent(now);
            store(here, input), store(here + state, forget);
            store(here + 2 * state, fresh), store(here + 3 * state, output);
            store(kept, now), store(kept + state, shown);
            store(h + n * state * r.steps + at, output * shown);
        });
    }
}

// dgates from dstates, to which what later pixels read is added; `turned` are the weights with columns
// for rows, in panels, and `carry` [blocks, hidden] is room.
void recurrence_gradient(
    const Recurrence& r, const float* turned, const float* gates, const float* cells, float* dstates, float* carry,
    float* dgates) {
    const int64_t state = int64_t(r.hidden) * LANES, cell = 2 * state, gate = 4 * state;
    const V one = all(1.0f);
    for (int t = r.steps; t-- > 0;) {
        float *dg = dgates + t * gate, *dh = dstates + t * state;
        const bool end = t + 1 == r.steps;
        if (!end)
            added(turned, r.hidden, 4 * r.hidden, dg + gate, gate * r.steps, nullptr, dh, state * r.steps, r.blocks);
        units(r, [=](int n, int at) {
            const float* here = gates + t * gate + n * gate * r.steps + at;
            const float* kept = cells + t * cell + n * cell * r.steps + at;
            const V input = load(here), forget = load(here + state), fresh = load(here + 2 * state);
            const V output = load(here + 3 * state), shown = load(kept + state), old = t ? load(kept - cell) : V{};
            const V d = load(dh + n * state * r.steps + at);
            float *carried = carry + n * state + at, *to = dg + n * gate * r.steps + at;
            const V dcell = fused(d * output, one - shown * shown, end ? V{} : load(carried));
            store(to, dcell * fresh * (input * (one - input)));
            store(to + state, dcell * old * (forget * (one - forget)));
            store(to + 2 * state, dcell * input * (one - fresh * fresh));
            store(to + 3 * state, d * shown * (output * (one - output)));
            store(carried, dcell * forget);
        });
    }
}
