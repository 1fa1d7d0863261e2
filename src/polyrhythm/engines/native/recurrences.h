// Sequences in rows: products, and the way of an LSTM along a sequence and back. Part of kernels.cpp, which includes it.
//
// An output is what is there, then the bias, then one fused multiply-add per number, in order. A gradient of weights is
// added up row by row, in groups of DEEP rows. What fills up a row is zero in weights, so it changes no sum.

constexpr int PANEL = WIDE * WIDTH;  // columns of a panel of weights
constexpr int DEEP = 64;             // rows that are added up before those of the next group

// A matrix of weights in panels, as rows are multiplied by it: the number of row r and column c lies at
// from[r * row + c * column]. Columns and rows are those of a `Row`, with zeros where it is filled up. Of each panel the
// first row comes first, then the second, and so on.
void panels(const float* from, const Row& across, int64_t column, const Row& down, int64_t row, float* to) {
    const int part = across.part, deep = down.part;
    for (int first = 0; first < across.floats; first += PANEL, to += int64_t(down.floats) * PANEL) {
        for (int64_t i = 0; i < int64_t(down.floats) * PANEL; ++i) to[i] = 0;
        for (int c = 0; c < PANEL && first + c < across.floats; ++c) {
            const int at = first + c, unit = at % part;
            if (unit >= across.each) continue;
            const float* here = from + (int64_t(at / part) * across.each + unit) * column;
            for (int place = 0; place < down.parts; ++place)
                for (int k = 0; k < down.each; ++k)
                    to[(int64_t(place) * deep + k) * PANEL + c] = here[(int64_t(place) * down.each + k) * row];
        }
    }
}

// to[i] = bias + the rows' product
void row_product(const RowProduct& p, const float* rows, const float* panels, const float* bias, float* to) {
    const int tiles = (p.rows + ROWS - 1) / ROWS, high = (p.rows + tiles - 1) / tiles;
    for (int first = 0; first < p.width; first += PANEL, panels += int64_t(p.depth) * PANEL)
        for (int row = 0; row < p.rows; row += high)
            with_size<ROWS>(p.rows - row < high ? p.rows - row : high, [&](auto tall) {
                with_size<WIDE>((p.width - first) / WIDTH, [&](auto across) {
                    constexpr int R = tall.value, C = across.value;
                    const float* from[C];
                    float* here = to + int64_t(row) * p.to + first;
                    V sum[R][C];
                    UNROLL for (int c = 0; c < C; ++c) from[c] = panels + c * WIDTH;
                    UNROLL for (int r = 0; r < R; ++r)
                        UNROLL for (int c = 0; c < C; ++c) {
                            sum[r][c] = p.more ? load(here + int64_t(r) * p.to + c * WIDTH) : V{};
                            if (bias) sum[r][c] += load(bias + first + c * WIDTH);
                        }
                    tile<R, C>(rows + int64_t(row) * p.from, p.from, 1, p.depth, from, [](int k) { return k * PANEL; },
                               sum);
                    UNROLL for (int r = 0; r < R; ++r)
                        UNROLL for (int c = 0; c < C; ++c) store(here + int64_t(r) * p.to + c * WIDTH, sum[r][c]);
                });
            });
}

// dweights[o, t] += sum over i of dout[i, o] * in[i, t], of so many rows of weights. What a tile reads of `dout` is first
// laid side by side: there it lies far apart.
void row_weights(int count, int rows, const float* dout, int64_t out, const float* in, int64_t from, int taps,
                 float* dweights) {
    const int pieces = (taps + WIDTH - 1) / WIDTH;
    float left[DEEP * ROWS];
    for (int first = 0; first < count; first += DEEP) {
        const int deep = count - first < DEEP ? count - first : DEEP;
        for (int row = 0; row < rows; row += ROWS)
            with_size<ROWS>(rows - row, [&](auto tall) {
                constexpr int R = tall.value;
                for (int k = 0; k < deep; ++k) std::memcpy(left + k * R, dout + (first + k) * out + row, 4 * R);
                for (int piece = 0; piece < pieces; piece += WIDE)
                    with_size<WIDE>(pieces - piece, [&](auto across) {
                        constexpr int C = across.value;
                        V sum[R][C] = {};
                        const float* right[C];
                        UNROLL for (int c = 0; c < C; ++c) right[c] = in + first * from + (piece + c) * WIDTH;
                        tile<R, C>(left, 1, R, deep, right, [=](int k) { return k * from; }, sum);
                        float* to = dweights + int64_t(row) * taps;
                        added_to<R, C>(to, taps, piece, sum);
                        rows_to<R, C>(to, taps, piece, sum);
                    });
            });
    }
}

// Of rows, [width] sums.
void row_sums(int count, const float* rows, int64_t from, int width, float* sums) {
    for (int at = 0; at < width; at += PANEL)
        with_size<WIDE>((width - at) / WIDTH, [&](auto across) {
            constexpr int C = across.value;
            V sum[C] = {};
            for (int i = 0; i < count; ++i)
                UNROLL for (int c = 0; c < C; ++c) sum[c] += load(rows + i * from + at + c * WIDTH);
            UNROLL for (int c = 0; c < C; ++c) store(sums + at + c * WIDTH, sum[c]);
        });
}

// `weights` are in panels, `bias` fills its row. gates [steps, count, 4 hidden] hold what the inputs give, and then the
// gates; cells [steps, count, 2 hidden] get the cells and their tangents, and states [steps, count, hidden] what the next
// pixel and the next layer read.
void recurrence(
    const Recurrence& r, const float* weights, const float* bias, float* gates, float* cells, float* states) {
    const int h = r.hidden;
    for (int t = 0; t < r.steps; ++t) {
        const int64_t at = int64_t(t) * r.count, before = at - r.count;
        row_product({r.count, t ? h : 0, 4 * h, h, 4 * h, true}, states + (t ? before : 0) * h, weights, bias,
                    gates + at * 4 * h);
        for (int64_t i = at; i < at + r.count; ++i)
            for (int unit = 0; unit < h; unit += WIDTH) {
                float *gate = gates + i * 4 * h + unit, *cell = cells + i * 2 * h + unit;
                const V input = sigmoid(load(gate)), forget = sigmoid(load(gate + h));
                const V fresh = tangent(load(gate + 2 * h)), output = sigmoid(load(gate + 3 * h));
                const V old = t ? load(cell - int64_t(r.count) * 2 * h) : V{};
                const V now = fused(forget, old, input * fresh), shown = tangent(now);
                store(gate, input), store(gate + h, forget), store(gate + 2 * h, fresh), store(gate + 3 * h, output);
                store(cell, now), store(cell + h, shown);
                store(states + i * h + unit, output * shown);
            }
    }
}

// dgates from dstates, to which what later pixels read is added; `turned` are the weights with columns for rows, in
// panels, and `carry` [count, hidden] is room.
void recurrence_gradient(
    const Recurrence& r, const float* turned, const float* gates, const float* cells, float* dstates, float* carry,
    float* dgates) {
    const int h = r.hidden;
    const V one = all(1.0f);
    for (int t = r.steps; t-- > 0;) {
        const int64_t at = int64_t(t) * r.count;
        const bool end = t + 1 == r.steps;
        if (!end)
            row_product({r.count, 4 * h, h, 4 * h, h, true}, dgates + (at + r.count) * 4 * h, turned, nullptr,
                        dstates + at * h);
        for (int64_t i = at; i < at + r.count; ++i)
            for (int unit = 0; unit < h; unit += WIDTH) {
                const float *gate = gates + i * 4 * h + unit, *cell = cells + i * 2 * h + unit;
                float *to = dgates + i * 4 * h + unit, *carried = carry + (i - at) * h + unit;
                const V input = load(gate), forget = load(gate + h), fresh = load(gate + 2 * h);
                const V output = load(gate + 3 * h), shown = load(cell + h), d = load(dstates + i * h + unit);
                const V old = t ? load(cell - int64_t(r.count) * 2 * h) : V{};
                const V dcell = fused(d * output, one - shown * shown, end ? V{} : load(carried));
                store(to, dcell * fresh * (input * (one - input)));
                store(to + h, dcell * old * (forget * (one - forget)));
                store(to + 2 * h, dcell * input * (one - fresh * fresh));
                store(to + 3 * h, d * shown * (output * (one - output)));
                store(carried, dcell * forget);
            }
    }
}
