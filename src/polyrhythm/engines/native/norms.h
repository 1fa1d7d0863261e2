// Norms over groups of channels, of each sample by itself. Part of kernels.cpp, which includes it.

// One by the number of numbers that a norm is over.
INLINE V share_of(const Norm& q) { return all(1.0f / float(q.channels / q.groups * q.height * q.width)); }

// Rows are summed by themselves, then one after the other; so many at a time, whose sums do not wait for each other.
constexpr int ABREAST = WIDTH / 4;

// Calls f(channel, row, rows) for some rows of pixels of a group after the others, none of two channels.
template <class F>
INLINE void rows_of(const Norm& q, int group, F f) {
    const int each = q.channels / q.groups;
    for (int c = group * each; c < (group + 1) * each; ++c)
        for (int y = 0; y < q.height; y += ABREAST)
            with_size<ABREAST>(q.height - y, [&](auto rows) { f(c, y, rows); });
}

// Sums over the pixels of a group of what `term` adds, given a register of the inputs.
template <class Term>
INLINE void group_sums(const Norm& q, int group, const float* from, V (&total)[PARTS], Term term) {
    UNROLL for (int part = 0; part < PARTS; ++part) total[part] = V{};
    rows_of(q, group, [&](int c, int y, auto rows) {
        constexpr int R = rows.value;
        const float* here = from + int64_t(c) * q.in_plane + int64_t(y) * q.in_row;
        V row[R][PARTS];
        UNROLL for (int r = 0; r < R; ++r)
            UNROLL for (int part = 0; part < PARTS; ++part) row[r][part] = V{};
        for (int x = 0; x < q.width; ++x)
            UNROLL for (int r = 0; r < R; ++r)
                UNROLL for (int part = 0; part < PARTS; ++part)
                    row[r][part] = term(part, load(here + r * q.in_row + x * LANES + part * WIDTH), row[r][part]);
        UNROLL for (int r = 0; r < R; ++r)
            UNROLL for (int part = 0; part < PARTS; ++part) total[part] += row[r][part];
    });
}

// moments [blocks, groups, 2]: the mean, and one by the root of the variance.
template <bool RELU, bool SUM>
INLINE void norm_by(const Norm& q, const float* scale, const float* shift, const float* in, float* out, float* moments) {
    const V share = share_of(q);
    for (int n = 0; n < q.blocks; ++n)
        for (int group = 0; group < q.groups; ++group) {
            const float *from = in + int64_t(n) * q.in_block + q.in, *also = nullptr;
            float* to = out + int64_t(n) * q.out_block + q.out;
            if (SUM) also = q.added + int64_t(n) * q.other_block + q.other;
            float* kept = moments + (int64_t(n) * q.groups + group) * 2 * LANES;
            V mean[PARTS], by[PARTS];
            group_sums(q, group, from, mean, [](int, V x, V sum) { return sum + x; });
            UNROLL for (int part = 0; part < PARTS; ++part) mean[part] = mean[part] * share;
            group_sums(q, group, from, by, [=](int part, V x, V sum) {
                const V apart = x - mean[part];
                return fused(apart, apart, sum);
            });
            UNROLL for (int part = 0; part < PARTS; ++part) {
                by[part] = fused(by[part], share, all(q.epsilon));
                for (int lane = 0; lane < WIDTH; ++lane) by[part][lane] = 1.0f / __builtin_sqrtf(by[part][lane]);
                store(kept + part * WIDTH, mean[part]), store(kept + LANES + part * WIDTH, by[part]);
            }
            rows_of(q, group, [=, &q](int c, int y, auto rows) {
                constexpr int R = rows.value;
                const float* here = from + int64_t(c) * q.in_plane + int64_t(y) * q.in_row;
                float* there = to + int64_t(c) * q.out_plane + int64_t(y) * q.out_row;
                const float* other = SUM ? also + int64_t(c) * q.other_plane + int64_t(y) * q.other_row : nullptr;
                const V scaled = all(scale ? scale[c] : 1.0f), shifted = all(shift ? shift[c] : 0.0f);
                for (int x = 0; x < q.width * LANES; x += LANES)
                    UNROLL for (int r = 0; r < R; ++r)
                        UNROLL for (int part = 0; part < PARTS; ++part) {
                            const int at = x + part * WIDTH;
                            V v = (load(here + r * q.in_row + at) - mean[part]) * by[part] * scaled + shifted;
                            if (SUM) v += load(other + r * q.other_row + at);
                            if (RELU) v = where(~(v <= V{}), v);
                            store(there + r * q.out_row + at, v);
                        }
            });
        }
}

void norm(const Norm& q, const float* scale, const float* shift, const float* in, float* out, float* moments) {
    if (q.added) return norm_by<true, true>(q, scale, shift, in, out, moments);
    if (q.relu) return norm_by<true, false>(q, scale, shift, in, out, moments);
    norm_by<false, false>(q, scale, shift, in, out, moments);
}

// dscale and dshift [blocks, channels] in each lane; din is set, where there is one, and so is the gradient of what is
// added. What a ReLU has let through follows from the sum, or without one from the inputs, as forward.
template <bool RELU, bool SUM>
INLINE void norm_gradient_by(const Norm& q, const float* scale, const float* shift, const float* in,
                             const float* moments, const float* dout, float* din, float* dscale, float* dshift) {
    const V share = share_of(q);
    for (int n = 0; n < q.blocks; ++n)
        for (int group = 0; group < q.groups; ++group) {
            const float *from = in + int64_t(n) * q.in_block + q.in, *d = dout + int64_t(n) * q.out_block + q.out;
            const float* kept = moments + (int64_t(n) * q.groups + group) * 2 * LANES;
            const float* sum = nullptr;
            float *to = din ? din + int64_t(n) * q.in_block + q.in : nullptr, *also = nullptr;
            if (SUM) sum = q.sum + int64_t(n) * q.out_block + q.out;
            if (SUM) also = q.dadded + int64_t(n) * q.other_block + q.other;
            V mean[PARTS], by[PARTS], of_scale[PARTS], of_shift[PARTS], mean_scale[PARTS], mean_shift[PARTS];
            UNROLL for (int part = 0; part < PARTS; ++part) {
                mean[part] = load(kept + part * WIDTH), by[part] = load(kept + LANES + part * WIDTH);
                of_scale[part] = of_shift[part] = mean_scale[part] = mean_shift[part] = V{};
            }
            // The slope of a register, from its number without scale and shift; `again` if it was asked for before.
            const auto slope_of = [=, &q](int c, int y, int at, V unit, V scaled, V shifted, bool again) {
                const int64_t o = int64_t(c) * q.out_plane + int64_t(y) * q.out_row + at;
                float* other = SUM ? also + int64_t(c) * q.other_plane + int64_t(y) * q.other_row + at : nullptr;
                if (SUM && again) return load(other);
                V slope = load(d + o);
                if (RELU) slope = where(~((SUM ? load(sum + o) : unit * scaled + shifted) <= V{}), slope);
                if (SUM) store(other, slope);
                return slope;
            };
            rows_of(q, group, [&](int c, int y, auto rows) {
                constexpr int R = rows.value;
                const float* here = from + int64_t(c) * q.in_plane + int64_t(y) * q.in_row;
                const V scaled = all(scale ? scale[c] : 1.0f), shifted = all(shift ? shift[c] : 0.0f);
                V row_scale[R][PARTS], row_shift[R][PARTS];
                UNROLL for (int r = 0; r < R; ++r)
                    UNROLL for (int part = 0; part < PARTS; ++part) row_scale[r][part] = row_shift[r][part] = V{};
                for (int x = 0; x < q.width * LANES; x += LANES)
                    UNROLL for (int r = 0; r < R; ++r)
                        UNROLL for (int part = 0; part < PARTS; ++part) {
                            const int at = x + part * WIDTH;
                            const V unit = (load(here + r * q.in_row + at) - mean[part]) * by[part];
                            const V slope = slope_of(c, y + r, at, unit, scaled, shifted, false);
                            row_shift[r][part] += slope;
                            row_scale[r][part] = fused(slope, unit, row_scale[r][part]);
                        }
                UNROLL for (int r = 0; r < R; ++r)
                    UNROLL for (int part = 0; part < PARTS; ++part)
                        of_scale[part] += row_scale[r][part], of_shift[part] += row_shift[r][part];
                if (y + R < q.height) return;
                UNROLL for (int part = 0; part < PARTS; ++part) {
                    const int64_t at = (int64_t(n) * q.channels + c) * LANES + part * WIDTH;
                    store(dscale + at, of_scale[part]), store(dshift + at, of_shift[part]);
                    mean_scale[part] = fused(of_scale[part], scaled, mean_scale[part]);
                    mean_shift[part] = fused(of_shift[part], scaled, mean_shift[part]);
                    of_scale[part] = of_shift[part] = V{};
                }
            });
            if (!din) continue;
            UNROLL for (int part = 0; part < PARTS; ++part)
                mean_scale[part] = mean_scale[part] * share, mean_shift[part] = mean_shift[part] * share;
            rows_of(q, group, [=, &q](int c, int y, auto rows) {
                constexpr int R = rows.value;
                const int64_t i = int64_t(c) * q.in_plane + int64_t(y) * q.in_row;
                const V scaled = all(scale ? scale[c] : 1.0f), shifted = all(shift ? shift[c] : 0.0f);
                for (int x = 0; x < q.width * LANES; x += LANES)
                    UNROLL for (int r = 0; r < R; ++r)
                        UNROLL for (int part = 0; part < PARTS; ++part) {
                            const int at = x + part * WIDTH;
                            const V unit = (load(from + i + r * q.in_row + at) - mean[part]) * by[part];
                            const V slope = slope_of(c, y + r, at, unit, scaled, shifted, true) * scaled;
                            const V d_unit = (slope - mean_shift[part]) - unit * mean_scale[part];
                            store(to + i + r * q.in_row + at, d_unit * by[part]);
                        }
            });
        }
}

void norm_gradient(const Norm& q, const float* scale, const float* shift, const float* in, const float* moments,
                   const float* dout, float* din, float* dscale, float* dshift) {
    if (q.sum) return norm_gradient_by<true, true>(q, scale, shift, in, moments, dout, din, dscale, dshift);
    if (q.relu) return norm_gradient_by<true, false>(q, scale, shift, in, moments, dout, din, dscale, dshift);
    norm_gradient_by<false, false>(q, scale, shift, in, moments, dout, din, dscale, dshift);
}

void add(const float* values, float* to, int64_t size) {
    for (int64_t i = 0; i < size; i += WIDTH) store(to + i, load(to + i) + load(values + i));
}
