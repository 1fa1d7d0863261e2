// Norms over groups of channels, of each sample by itself. Part of kernels.cpp, which includes it.

// Calls f(channel, in, out) for each register of a group's pixels, where it lies in two maps; rows one after the other,
// and after each of them end().
template <class F, class End>
INLINE void pixels(const Norm& q, int group, F f, End end) {
    const int each = q.channels / q.groups;
    for (int c = group * each; c < (group + 1) * each; ++c)
        for (int y = 0; y < q.height; ++y, end())
            for (int x = 0; x < q.width; ++x)
                f(c, q.in + int64_t(c) * q.in_plane + y * q.in_row + x * LANES,
                  q.out + int64_t(c) * q.out_plane + y * q.out_row + x * LANES);
}

// moments [blocks, groups, 2]: the mean, and one by the root of the variance.
void norm(const Norm& q, const float* scale, const float* shift, const float* in, float* out, float* moments) {
    const V share = all(1.0f / float(q.channels / q.groups * q.height * q.width));
    for (int n = 0; n < q.blocks; ++n)
        for (int group = 0; group < q.groups; ++group)
            for (int part = 0; part < LANES; part += WIDTH) {
                const float* from = in + int64_t(n) * q.in_block + part;
                float* to = out + int64_t(n) * q.out_block + part;
                float* kept = moments + (int64_t(n) * q.groups + group) * 2 * LANES + part;
                V total = {}, row = {};
                pixels(q, group, [&](int, int64_t i, int64_t) { row += load(from + i); }, [&] { total += row, row = V{}; });
                const V mean = total * share;
                total = V{};
                pixels(q, group,
                       [&](int, int64_t i, int64_t) {
                           const V apart = load(from + i) - mean;
                           row = fused(apart, apart, row);
                       },
                       [&] { total += row, row = V{}; });
                V by = fused(total, share, all(q.epsilon));
                for (int lane = 0; lane < WIDTH; ++lane) by[lane] = 1.0f / __builtin_sqrtf(by[lane]);
                store(kept, mean), store(kept + LANES, by);
                pixels(q, group,
                       [&](int c, int64_t i, int64_t o) {
                           V y = (load(from + i) - mean) * by;
                           if (scale) y = y * all(scale[c]);
                           if (shift) y = y + all(shift[c]);
                           store(to + o, y);
                       },
                       [] {});
            }
}

// dscale and dshift [blocks, channels] in each lane; din is set, where there is one.
void norm_gradient(const Norm& q, const float* scale, const float* in, const float* moments, const float* dout, float* din,
                   float* dscale, float* dshift) {
    const int each = q.channels / q.groups;
    const V share = all(1.0f / float(each * q.height * q.width));
    for (int n = 0; n < q.blocks; ++n)
        for (int group = 0; group < q.groups; ++group)
            for (int part = 0; part < LANES; part += WIDTH) {
                const float *from = in + int64_t(n) * q.in_block + part, *d = dout + int64_t(n) * q.out_block + part;
                const float* kept = moments + (int64_t(n) * q.groups + group) * 2 * LANES + part;
                const V mean = load(kept), by = load(kept + LANES);
                V of_scale = {}, of_shift = {}, row_scale = {}, row_shift = {}, mean_scale = {}, mean_shift = {};
                int c = group * each, y = 0;
                pixels(q, group,
                       [&](int, int64_t i, int64_t o) {
                           const V slope = load(d + o);
                           row_shift += slope;
                           row_scale = fused(slope, (load(from + i) - mean) * by, row_scale);
                       },
                       [&] {
                           of_scale += row_scale, of_shift += row_shift, row_scale = row_shift = V{};
                           if (++y < q.height) return;
                           const int64_t at = (int64_t(n) * q.channels + c) * LANES + part;
                           const V by_channel = all(scale ? scale[c] : 1.0f);
                           store(dscale + at, of_scale), store(dshift + at, of_shift);
                           mean_scale = fused(of_scale, by_channel, mean_scale);
                           mean_shift = fused(of_shift, by_channel, mean_shift);
                           of_scale = of_shift = V{}, y = 0, ++c;
                       });
                if (!din) continue;
                float* to = din + int64_t(n) * q.in_block + part;
                mean_scale = mean_scale * share, mean_shift = mean_shift * share;
                pixels(q, group,
                       [&](int channel, int64_t i, int64_t o) {
                           const V unit = (load(from + i) - mean) * by;
                           const V slope = load(d + o) * all(scale ? scale[channel] : 1.0f);
                           store(to + i, ((slope - mean_shift) - unit * mean_scale) * by);
                       },
                       [] {});
            }
}

void add(const float* values, float* to, int64_t size) {
    for (int64_t i = 0; i < size; i += WIDTH) store(to + i, load(to + i) + load(values + i));
}
