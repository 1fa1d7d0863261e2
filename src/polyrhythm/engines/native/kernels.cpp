// The kernels. Compiled once for each instruction set, under the name that POLYRHYTHM_KERNELS gives.
//
// Nothing here may come from a header with inline code of its own (<vector>, <algorithm>): the linker keeps one copy of
// such code for the whole program, and that copy might be made of instructions that the processor lacks.
//
// Sums: an output is the bias, then one fused multiply-add per tap, in order. A gradient of the inputs is added up by
// groups of four columns, in those by six taps, then column by column. A gradient of weights is added up in each lane,
// column by column, then the lanes are folded in halves. None of this depends on the width of a register.
#include "kernels.h"

#include <algorithm>
#include <cmath>

#include "lanes.h"

namespace {

#define INLINE __attribute__((always_inline)) inline
#define UNROLL _Pragma("GCC unroll 16")

constexpr int PARTS = LANES / WIDTH;         // registers in a column
constexpr int WIDE = WIDTH == 16 ? 4 : 2;    // registers side by side in a tile: 6 × 4 sums, or 6 × 2, stay in registers
constexpr int ROWS = 6;                      // rows of a tile
constexpr int GROUP = 4;                     // columns whose gradients are added up before those of the next

template <int N>
struct Size {
    static constexpr int value = N;
};

// Calls f with min(n, MOST) as a constant, so that a tile's sums can be held in registers.
template <int MOST, class F>
INLINE void with_size(int n, F f) {
    if constexpr (MOST > 1) {
        if (n < MOST) return with_size<MOST - 1>(n, f);
    }
    f(Size<MOST>{});
}

// Zeros, each by itself: an array's own would be written to memory.
template <int R, int C>
INLINE void clear(V (&sum)[R][C]) {
    UNROLL for (int r = 0; r < R; ++r)
        UNROLL for (int c = 0; c < C; ++c) sum[r][c] = V{};
}

// Register `piece` of a row of columns, counting from the first column of the first block.
INLINE int at(const int* column, int piece) { return column[piece / PARTS] + piece % PARTS * WIDTH; }

// sum[r][c] += left[r, k] * right[k, c] over k: what everything that learns is made of.
//   left[r, k] is left[r * row + k * step]; right[k, c] is the register at right[c] + offset(k).
template <int R, int C, class Offset>
INLINE void tile(
    const float* left, int64_t row, int64_t step, int depth, const float* const (&right)[C], Offset offset,
    V (&sum)[R][C]) {
    for (int k = 0; k < depth; ++k) {
        V b[C];
        const int64_t there = offset(k);
        UNROLL for (int c = 0; c < C; ++c) b[c] = load(right[c] + there);
        UNROLL for (int r = 0; r < R; ++r) {
            const V a = all(left[r * row + k * step]);
            UNROLL for (int c = 0; c < C; ++c) sum[r][c] = fused(a, b[c], sum[r][c]);
        }
    }
}

// Calls f(row, piece) for each tile. What is fewer, rows or columns, is gone through for each tile of the other, so that
// the smaller one of both matrices stays in a cache.
template <int MOST, int ACROSS, class F>
INLINE void tiles(int rows, int pieces, F f) {
    const bool fewer = rows < pieces * WIDTH;
    const int outer = fewer ? pieces : rows, inner = fewer ? rows : pieces;
    for (int i = 0; i < outer; i += fewer ? ACROSS : MOST)
        for (int j = 0; j < inner; j += fewer ? MOST : ACROSS) f(fewer ? j : i, fewer ? i : j);
}

// out[o, j] = bias[o] + sum over t of weights[o, t] * in[column j, tap t]
template <int MOST, int ACROSS>
INLINE void forward_by(
    const Product& p, const float* weights, const float* bias, const float* in, float* out, int pieces) {
    tiles<MOST, ACROSS>(p.rows, pieces, [&](int row, int piece) {
        with_size<MOST>(p.rows - row, [&](auto rows) {
            with_size<ACROSS>(pieces - piece, [&](auto across) {
                constexpr int R = rows.value, C = across.value;
                const float* from[C];
                V sum[R][C];
                UNROLL for (int c = 0; c < C; ++c) from[c] = in + at(p.column, piece + c);
                UNROLL for (int r = 0; r < R; ++r)
                    UNROLL for (int c = 0; c < C; ++c) sum[r][c] = all(bias ? bias[row + r] : 0.0f);
                const int* tap = p.tap;
                const float* left = weights + int64_t(row) * p.taps;
                tile<R, C>(left, p.taps, 1, p.taps, from, [=](int t) { return tap[t]; }, sum);
                UNROLL for (int c = 0; c < C; ++c) {
                    float* to = out + at(p.place, piece + c) + int64_t(row) * p.plane;
                    UNROLL for (int r = 0; r < R; ++r) store(to + r * int64_t(p.plane), sum[r][c]);
                }
            });
        });
    });
}

void forward(const Product& p, const float* weights, const float* bias, const float* in, float* out, int blocks) {
    const int pieces = blocks * p.columns * PARTS;
    if (pieces == 1) return forward_by<TALL, 1>(p, weights, bias, in, out, pieces);
    forward_by<ROWS, WIDE>(p, weights, bias, in, out, pieces);
}

// din[column j, tap t] += sum over o of weights[o, t] * dout[o, j]; din begins as zeros
template <int MOST, int ACROSS>
INLINE void input_gradient_by(const Product& p, const float* weights, const float* dout, float* din, int pieces) {
    for (int group = 0; group < pieces; group += GROUP * PARTS) {
        const int end = group + GROUP * PARTS < pieces ? group + GROUP * PARTS : pieces;
        for (int tap = 0; tap < p.taps; tap += MOST)
            for (int piece = group; piece < end; piece += ACROSS)
                with_size<MOST>(p.taps - tap, [&](auto taps) {
                    with_size<ACROSS>(end - piece, [&](auto across) {
                        constexpr int R = taps.value, C = across.value;
                        const float* from[C];
                        V sum[R][C] = {};
                        UNROLL for (int c = 0; c < C; ++c) from[c] = dout + at(p.place, piece + c);
                        const int64_t plane = p.plane;
                        tile<R, C>(weights + tap, 1, p.taps, p.rows, from, [=](int o) { return o * plane; }, sum);
                        UNROLL for (int c = 0; c < C; ++c) {
                            float* to = din + at(p.column, piece + c);
                            UNROLL for (int r = 0; r < R; ++r) {
                                float* here = to + p.tap[tap + r];
                                store(here, load(here) + sum[r][c]);
                            }
                        }
                    });
                });
    }
}

void input_gradient(const Product& p, const float* weights, const float* dout, float* din, int blocks) {
    const int pieces = blocks * p.columns * PARTS;
    if (pieces == 1) return input_gradient_by<TALL, 1>(p, weights, dout, din, pieces);
    input_gradient_by<ROWS, WIDE>(p, weights, dout, din, pieces);
}

typedef float Q __attribute__((vector_size(16)));

INLINE Q quarter(const float* from) {
    Q q;
    std::memcpy(&q, from, sizeof q);
    return q;
}

// The sum of 16 lanes: halves onto halves.
INLINE float folded(const float (&lane)[LANES]) {
    const Q four = (quarter(lane) + quarter(lane + 8)) + (quarter(lane + 4) + quarter(lane + 12));
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// sum over j of dout[o, j] * in[column j, tap t] in each lane, over the columns of some blocks; use(o, t, lanes) gets it.
template <class Use>
INLINE void weights_by_lane(const Product& p, const float* in, const float* dout, int block, int blocks, Use use) {
    const int first = block * p.columns, end = blocks * p.columns;
    for (int row = 0; row < p.rows; row += ROWS)
        for (int tap = 0; tap < p.taps; tap += WIDE)
            with_size<ROWS>(p.rows - row, [&](auto rows) {
                with_size<WIDE>(p.taps - tap, [&](auto taps) {
                    constexpr int R = rows.value, C = taps.value;
                    alignas(64) float lane[R][C][LANES];
                    for (int part = 0; part < LANES; part += WIDTH) {
                        V sum[R][C] = {};
                        const float* from[C];
                        UNROLL for (int c = 0; c < C; ++c) from[c] = in + p.tap[tap + c] + part;
                        const float* left = dout + int64_t(row) * p.plane + part;
                        for (int j = first; j < end; ++j) {
                            V b[C];
                            UNROLL for (int c = 0; c < C; ++c) b[c] = load(from[c] + p.column[j]);
                            UNROLL for (int r = 0; r < R; ++r) {
                                const V a = load(left + r * int64_t(p.plane) + p.place[j]);
                                UNROLL for (int c = 0; c < C; ++c) sum[r][c] = fused(a, b[c], sum[r][c]);
                            }
                        }
                        UNROLL for (int r = 0; r < R; ++r)
                            UNROLL for (int c = 0; c < C; ++c) store(lane[r][c] + part, sum[r][c]);
                    }
                    UNROLL for (int r = 0; r < R; ++r)
                        UNROLL for (int c = 0; c < C; ++c) use(row + r, tap + c, lane[r][c]);
                });
            });
}

// dweights[o, t] = sum over j of dout[o, j] * in[column j, tap t], for layers with many columns
void weight_gradient(const Product& p, const float* in, const float* dout, float* dweights, int blocks) {
    weights_by_lane(p, in, dout, 0, blocks, [=, &p](int row, int tap, const float (&lane)[LANES]) {
        dweights[row * int64_t(p.taps) + tap] = folded(lane);
    });
}

INLINE double squared(const float (&lane)[LANES]) {
    double sum = 0;
    for (int b = 0; b < LANES; ++b) sum += double(lane[b]) * lane[b];
    return sum;
}

// The squares of what single samples would give, summed.
double weight_squares(const Product& p, const float* in, const float* dout, int blocks) {
    double sum = 0;
    for (int n = 0; n < blocks; ++n)
        weights_by_lane(p, in, dout, n, n + 1, [&](int, int, const float (&lane)[LANES]) { sum += squared(lane); });
    return sum;
}

// Registers from `piece` on of some rows of weights, whose end need not fill one.
template <int R, int C>
INLINE void rows_to(float* dweights, int taps, int piece, const V (&sum)[R][C]) {
    UNROLL for (int c = 0; c < C; ++c) {
        const int tap = (piece + c) * WIDTH, left = taps - tap;
        UNROLL for (int r = 0; r < R; ++r) {
            float* to = dweights + r * int64_t(taps) + tap;
            if (left >= WIDTH)
                store(to, sum[r][c]);
            else
                std::memcpy(to, &sum[r][c], 4 * left);
        }
    }
}

// And what is there added to them.
template <int R, int C>
INLINE void added_to(const float* dweights, int taps, int piece, V (&sum)[R][C]) {
    UNROLL for (int c = 0; c < C; ++c) {
        const int tap = (piece + c) * WIDTH, left = taps - tap;
        UNROLL for (int r = 0; r < R; ++r) {
            const float* from = dweights + r * int64_t(taps) + tap;
            if (left >= WIDTH) {
                sum[r][c] += load(from);
                continue;
            }
            V there = {};
            std::memcpy(&there, from, 4 * size_t(left));
            sum[r][c] += there;
        }
    }
}

// The same for some rows of a layer with one column a block, from its inputs sample by sample, [count, pitch]:
// registers run along the taps, so idle lanes cost nothing and nothing needs to be folded.
void row_gradient(
    const Product& p, const float* samples, int pitch, const float* dout, int count, int row, int rows, float* dweights) {
    const int pieces = (p.taps + WIDTH - 1) / WIDTH;
    for (int piece = 0; piece < pieces; piece += WIDE)
        with_size<ROWS>(rows, [&](auto most) {
            with_size<WIDE>(pieces - piece, [&](auto across) {
                constexpr int R = most.value, C = across.value;
                V sum[R][C] = {};
                for (int first = 0; first < count; first += LANES) {
                    const float* from[C];
                    UNROLL for (int c = 0; c < C; ++c) from[c] = samples + int64_t(first) * pitch + (piece + c) * WIDTH;
                    const float* left = dout + p.place[first / LANES] + int64_t(row) * p.plane;
                    const int depth = count - first < LANES ? count - first : LANES;
                    tile<R, C>(left, p.plane, 1, depth, from, [=](int k) { return int64_t(k) * pitch; }, sum);
                }
                rows_to<R, C>(dweights, p.taps, piece, sum);
            });
        });
}

// sum over j of dout[o, j] in each lane, over the columns of some blocks; use(o, lanes) gets it.
template <class Use>
INLINE void biases_by_lane(const Product& p, const float* dout, int block, int blocks, Use use) {
    const int first = block * p.columns, end = blocks * p.columns;
    for (int row = 0; row < p.rows; row += ROWS)
        with_size<ROWS>(p.rows - row, [&](auto rows) {
            constexpr int R = rows.value;
            alignas(64) float lane[R][LANES];
            for (int part = 0; part < LANES; part += WIDTH) {
                V sum[R] = {};
                const float* from = dout + int64_t(row) * p.plane + part;
                for (int j = first; j < end; ++j)
                    UNROLL for (int r = 0; r < R; ++r) sum[r] += load(from + p.place[j] + r * int64_t(p.plane));
                UNROLL for (int r = 0; r < R; ++r) store(lane[r] + part, sum[r]);
            }
            UNROLL for (int r = 0; r < R; ++r) use(row + r, lane[r]);
        });
}

// dbias[o] = sum over j of dout[o, j]
void bias_gradient(const Product& p, const float* dout, float* dbias, int blocks) {
    biases_by_lane(p, dout, 0, blocks, [=](int row, const float (&lane)[LANES]) { dbias[row] = folded(lane); });
}

double bias_squares(const Product& p, const float* dout, int blocks) {
    double sum = 0;
    for (int n = 0; n < blocks; ++n)
        biases_by_lane(p, dout, n, n + 1, [&](int, const float (&lane)[LANES]) { sum += squared(lane); });
    return sum;
}

// A square of 4 × 4 floats, rows for columns.
INLINE void turn(Q (&q)[4]) {
    const Q a = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5), b = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7);
    const Q c = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5), d = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
    q[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5), q[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    q[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5), q[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

// Sixteen samples [features] side by side: feature f goes to out + place[f].
void to_lanes(const float* const* samples, int features, const int* place, float* out) {
    int f = 0;
    for (; f + 4 <= features; f += 4)
        for (int lane = 0; lane < LANES; lane += 4) {
            Q q[4];
            for (int i = 0; i < 4; ++i) q[i] = quarter(samples[lane + i] + f);
            turn(q);
            for (int i = 0; i < 4; ++i) std::memcpy(out + place[f + i] + lane, &q[i], sizeof q[i]);
        }
    for (; f < features; ++f)
        for (int lane = 0; lane < LANES; ++lane) out[place[f] + lane] = samples[lane][f];
}

// And back: the taps of a block's one column as 16 rows [pitch], pitch a multiple of 16.
void to_rows(const float* in, const int* tap, int taps, float* rows, int pitch) {
    int t = 0;
    for (; t + 4 <= taps; t += 4)
        for (int lane = 0; lane < LANES; lane += 4) {
            Q q[4];
            for (int i = 0; i < 4; ++i) q[i] = quarter(in + tap[t + i] + lane);
            turn(q);
            for (int i = 0; i < 4; ++i) std::memcpy(rows + int64_t(lane + i) * pitch + t, &q[i], sizeof q[i]);
        }
    for (; t < taps; ++t)
        for (int lane = 0; lane < LANES; ++lane) rows[int64_t(lane) * pitch + t] = in[tap[t] + lane];
}

#include "convolutions.h"
#include "recurrences.h"
#include "squares.h"
#include "norms.h"
#include "batch_norms.h"

// A NaN is not <= 0 and stays, in the value and in the gradient, as in torch.
void relu(float* values, int64_t size) {
    for (int64_t i = 0; i < size; i += WIDTH) {
        const V v = load(values + i);
        store(values + i, where(~(v <= V{}), v));
    }
}

void relu_gradient(const float* values, float* gradient, int64_t size) {
    for (int64_t i = 0; i < size; i += WIDTH)
        store(gradient + i, where(~(load(values + i) <= V{}), load(gradient + i)));
}

// Two rounds of a 32-bit mixer ("lowbias32", C. Wellons), each keyed. Nothing is stored: the way back draws again.
INLINE U mixed(U x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

void drop(const Drop& d, float* values, int64_t size) {
    U index;
    for (int lane = 0; lane < WIDTH; ++lane) index[lane] = lane;
    for (int64_t i = 0; i < size; i += WIDTH) {
        const U drawn = mixed(mixed((index + uint32_t(i)) ^ d.key[0]) + d.key[1]);
        store(values + i, where(I(drawn >= d.threshold), load(values + i) * all(d.scale)));
    }
}

// The highest of a window; the first NaN stays. The same rule twice, so that the way back finds the same place.
INLINE V highest(const Pool& p, int window, const float* in) {
    V most = load(in + p.tap[p.first[window]]);
    for (int i = p.first[window] + 1; i < p.first[window + 1]; ++i) {
        const V v = load(in + p.tap[i]);
        most = choose((v > most) | (v != v), v, most);
    }
    return most;
}

void max_pool(const Pool& p, const float* in, float* out, int blocks) {
    for (int n = 0; n < blocks; ++n, in += p.in_block, out += p.out_block)
        for (int w = 0; w < p.windows; ++w)
            for (int part = 0; part < LANES; part += WIDTH) store(out + p.place[w] + part, highest(p, w, in + part));
}

// The gradient goes to the first of a window's places that holds its highest value.
void max_pool_gradient(const Pool& p, const float* in, const float* dout, float* din, int blocks) {
    for (int n = 0; n < blocks; ++n, in += p.in_block, dout += p.out_block, din += p.in_block)
        for (int w = 0; w < p.windows; ++w)
            for (int part = 0; part < LANES; part += WIDTH) {
                const V most = highest(p, w, in + part), d = load(dout + p.place[w] + part);
                I open = ~I{};
                for (int i = p.first[w]; i < p.first[w + 1]; ++i) {
                    const V v = load(in + p.tap[i] + part);
                    const I here = open & ((v == most) | (v != v));
                    float* to = din + p.tap[i] + part;
                    store(to, load(to) + where(here, d));
                    open &= ~here;
                }
            }
}

void average_pool(const Pool& p, const float* in, float* out, int blocks) {
    for (int n = 0; n < blocks; ++n, in += p.in_block, out += p.out_block)
        for (int w = 0; w < p.windows; ++w)
            for (int part = 0; part < LANES; part += WIDTH) {
                V sum = {};
                for (int i = p.first[w]; i < p.first[w + 1]; ++i) sum += load(in + p.tap[i] + part);
                store(out + p.place[w] + part, sum * all(p.share[w]));
            }
}

void average_pool_gradient(const Pool& p, const float* dout, float* din, int blocks) {
    for (int n = 0; n < blocks; ++n, dout += p.out_block, din += p.in_block)
        for (int w = 0; w < p.windows; ++w)
            for (int part = 0; part < LANES; part += WIDTH) {
                const V d = load(dout + p.place[w] + part) * all(p.share[w]);
                for (int i = p.first[w]; i < p.first[w + 1]; ++i) {
                    float* to = din + p.tap[i] + part;
                    store(to, load(to) + d);
                }
            }
}

// One block of logits [classes, 16] becomes its gradient, softmax minus label, times `share`, which is 1 / batch.
// Gives the loss of each of its `count` samples, without the smoothing, which only the gradient has.
void cross_entropy(
    float* logits, int classes, const int64_t* labels, int count, float smoothing, float share, double* losses) {
    alignas(64) float target[LANES], most[LANES], total[LANES];
    for (int b = 0; b < count; ++b) target[b] = logits[labels[b] * LANES + b];
    for (int part = 0; part < LANES; part += WIDTH) {
        float* x = logits + part;
        V top = load(x);
        for (int c = 1; c < classes; ++c) {
            const V v = load(x + c * LANES);
            top = choose((v > top) | (v != v), v, top);
        }
        V sum = {};
        for (int c = 0; c < classes; ++c) {
            const V e = exponential(load(x + c * LANES) - top);
            store(x + c * LANES, e);
            sum += e;
        }
        for (int c = 0; c < classes; ++c) {
            const V p = load(x + c * LANES) / sum - all(smoothing / float(classes));
            store(x + c * LANES, p * all(share));
        }
        store(most + part, top);
        store(total + part, sum);
    }
    for (int b = 0; b < count; ++b) {
        losses[b] = double(most[b]) + std::log(double(total[b])) - double(target[b]);
        logits[labels[b] * LANES + b] -= (1 - smoothing) * share;
    }
    for (int b = count; b < LANES; ++b)
        for (int c = 0; c < classes; ++c) logits[c * LANES + b] = 0;
}

// The same for labels that are each there or not: sigmoid minus target, times `weight` (1 / labels for their mean).
void binary_cross_entropy(
    float* logits, int labels, const float* const* targets, int count, float weight, float share, double* losses) {
    for (int b = 0; b < count; ++b) losses[b] = 0;
    for (int c = 0; c < labels; ++c) {
        float* x = logits + c * LANES;
        alignas(64) float small[LANES];  // e**-|x|, from which both the loss and the sigmoid follow
        for (int part = 0; part < LANES; part += WIDTH) {
            const V v = load(x + part);
            store(small + part, exponential(choose(v > V{}, -v, v)));
        }
        for (int b = 0; b < LANES; ++b) {
            if (b >= count) {
                x[b] = 0;
                continue;
            }
            const float y = targets[b][c], e = small[b];
            losses[b] += weight * (double(x[b] > 0 ? x[b] : 0) - double(x[b]) * y + std::log1p(double(e)));
            x[b] = ((x[b] > 0 ? 1 : e) / (1 + e) - y) * weight * share;
        }
    }
}

// Adds to dz the gradient of strength * sum of softplus((s(z, far) - s(z, near)) / temperature) over a block's samples.
//     s(z, y) = z y / (|z| |y|), so ds/dz = y / (|z| |y|) - s z / |z|^2; a length counts as 1e-8 at least.
// `near` and `far` are [features, 16].
void contrast(
    const float* z, const int* place, int features, const float* near, const float* far, int count, float strength,
    float temperature, float* dz) {
    alignas(64) float zz[LANES], nn[LANES], ff[LANES], zn[LANES], zf[LANES], by_z[LANES], by_near[LANES], by_far[LANES];
    for (int part = 0; part < LANES; part += WIDTH) {
        V sums[5] = {};
        for (int f = 0; f < features; ++f) {
            const V a = load(z + place[f] + part), n = load(near + f * LANES + part), r = load(far + f * LANES + part);
            sums[0] = fused(a, a, sums[0]), sums[1] = fused(n, n, sums[1]), sums[2] = fused(r, r, sums[2]);
            sums[3] = fused(a, n, sums[3]), sums[4] = fused(a, r, sums[4]);
        }
        store(zz + part, sums[0]), store(nn + part, sums[1]), store(ff + part, sums[2]);
        store(zn + part, sums[3]), store(zf + part, sums[4]);
    }
    const auto length = [](double square) { return square > 1e-16 ? std::sqrt(square) : 1e-8; };
    for (int b = 0; b < LANES; ++b) {
        const double own = length(zz[b]), to_near = own * length(nn[b]), to_far = own * length(ff[b]);
        const double gap = zf[b] / to_far - zn[b] / to_near;
        const double slope = b < count ? strength / temperature / (1 + std::exp(-gap / temperature)) : 0;
        by_near[b] = float(-slope / to_near);
        by_far[b] = float(slope / to_far);
        by_z[b] = zz[b] > 0 ? float(-slope * gap / own / std::sqrt(double(zz[b]))) : 0;
    }
    for (int f = 0; f < features; ++f)
        for (int part = 0; part < LANES; part += WIDTH) {
            float* to = dz + place[f] + part;
            V sum = fused(load(by_near + part), load(near + f * LANES + part), load(to));
            sum = fused(load(by_far + part), load(far + f * LANES + part), sum);
            store(to, fused(load(by_z + part), load(z + place[f] + part), sum));
        }
}

enum Mover { PLAIN, MOVING, ADAM };

template <bool PULLED, bool SHIFTED, Mover MOVER>
INLINE void updated(const Update& u, const float* gradient, int64_t offset, int64_t size) {
    float* __restrict w = u.weights + offset;
    float* __restrict m = MOVER == PLAIN ? nullptr : u.moment + offset;
    float* __restrict s = MOVER == ADAM ? u.second + offset : nullptr;
    const float* __restrict w0 = PULLED ? u.start + offset : nullptr;
    const float* __restrict shift = SHIFTED ? u.shift + offset : nullptr;
    for (int64_t i = 0; i < size; ++i) {
        float d = gradient[i];
        if (PULLED) d += u.pull * (w[i] - w0[i]);
        if (SHIFTED) d += shift[i];
        d += u.decay * w[i];
        if (MOVER == ADAM) {
            m[i] += (1 - u.momentum) * (d - m[i]);
            s[i] = u.beta2 * s[i] + u.rest2 * d * d;
            w[i] = u.keep * w[i] - u.rate * (m[i] / (__builtin_sqrtf(s[i]) / u.root + u.epsilon));
            continue;
        }
        if (MOVER == MOVING) {
            m[i] = u.momentum * m[i] + d;
            d = u.nesterov ? d + u.momentum * m[i] : m[i];
        }
        w[i] -= u.rate * d;
    }
}

template <bool PULLED, bool SHIFTED>
INLINE void updated_by(const Update& u, const float* gradient, int64_t offset, int64_t size) {
    if (u.second) return updated<PULLED, SHIFTED, ADAM>(u, gradient, offset, size);
    if (u.moment) return updated<PULLED, SHIFTED, MOVING>(u, gradient, offset, size);
    updated<PULLED, SHIFTED, PLAIN>(u, gradient, offset, size);
}

void update(const Update& u, const float* gradient, int64_t offset, int64_t size) {
    if (u.start && u.shift) return updated_by<true, true>(u, gradient, offset, size);
    if (u.start) return updated_by<true, false>(u, gradient, offset, size);
    if (u.shift) return updated_by<false, true>(u, gradient, offset, size);
    updated_by<false, false>(u, gradient, offset, size);
}

// The sum of squares, in sixteen sums of double precision that are then folded.
double square(const float* values, int64_t size) {
    double sum[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) sum[lane] += double(values[i + lane]) * values[i + lane];
    for (int lane = 0; i + lane < size; ++lane) sum[lane] += double(values[i + lane]) * values[i + lane];
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
    return sum[0];
}

void scale(float* values, int64_t size, float by) {
    for (int64_t i = 0; i < size; ++i) values[i] *= by;
}

typedef float Eight __attribute__((vector_size(32)));

// Past the caches, which a long vector that is not read soon would only empty; `to` lies on a boundary of 64 bytes.
INLINE void store_past(float* to, V v) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, v);
#elif defined(__AVX2__) && defined(__FMA__)
    _mm256_stream_ps(to, v);
#elif defined(__SSE2__)
    _mm_stream_ps(to, v);
#else
    store(to, v);
#endif
}

// Stores a - b, sixteen at a time, and adds up the squares in eight sums; gives where it stopped.
template <bool PAST>
INLINE int64_t subtracted(float* out, const float* a, const float* b, int64_t size, Eight& sum) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        V d[PARTS];
        for (int part = 0; part < PARTS; ++part) {
            const int64_t at = i + part * WIDTH;
            d[part] = load(a + at) - load(b + at);
            if constexpr (PAST)
                store_past(out + at, d[part]);
            else
                store(out + at, d[part]);
        }
        Eight both[2];
        std::memcpy(both, d, sizeof both);
        sum += both[0] * both[0];
        sum += both[1] * both[1];
    }
    return i;
}

// out = a - b, and its Euclidean length: to the bits of torch, which adds up squares in eight sums, and those in order.
float difference(float* out, const float* a, const float* b, int64_t size) {
    Eight sum = {};
    const bool past = size >= FAR && reinterpret_cast<uintptr_t>(out) % 64 == 0;
    int64_t i = past ? subtracted<true>(out, a, b, size, sum) : subtracted<false>(out, a, b, size, sum);
#if defined(__SSE2__)
    if (past) _mm_sfence();
#endif
    for (int64_t left = i + 8; left <= size; i = left, left += 8)
        for (int lane = 0; lane < 8; ++lane) {
            const float d = out[i + lane] = a[i + lane] - b[i + lane];
            sum[lane] += d * d;
        }
    float total = sum[0];
    for (int lane = 1; lane < 8; ++lane) total += sum[lane];
    for (; i < size; ++i) {
        const float d = out[i] = a[i] - b[i];
        total += d * d;
    }
    return std::sqrt(total);
}

// The Euclidean length of each block of BLOCK, to the bits of torch as above; of four at a time, whose sums do not wait
// for each other. What is left at the end is a block, too.
float length(const float* a, int64_t size) {
    float sum[8] = {}, total = 0;
    int64_t i = 0;
    for (; i + 8 <= size; i += 8)
        for (int lane = 0; lane < 8; ++lane) sum[lane] += a[i + lane] * a[i + lane];
    for (int lane = 0; lane < 8; ++lane) total += sum[lane];
    for (; i < size; ++i) total += a[i] * a[i];
    return std::sqrt(total);
}

void lengths(const float* a, int64_t size, float* out) {
    int64_t block = 0;
    for (; (block + 4) * BLOCK <= size; block += 4) {
        Eight sums[4] = {};
        for (int64_t i = 0; i < BLOCK; i += 8)
            for (int k = 0; k < 4; ++k) {
                Eight eight;
                std::memcpy(&eight, a + (block + k) * BLOCK + i, sizeof eight);
                sums[k] += eight * eight;
            }
        for (int k = 0; k < 4; ++k) {
            float total = sums[k][0];
            for (int lane = 1; lane < 8; ++lane) total += sums[k][lane];
            out[block + k] = std::sqrt(total);
        }
    }
    for (; block * BLOCK < size; ++block)
        out[block] = length(a + block * BLOCK, std::min(BLOCK, size - block * BLOCK));
}

// out = the sum of weights[i] * vectors[i] over the tree of `vectors.weighted_sum`: every aligned block of 2**k
// neighbours on its own. It goes through all vectors once, a span of each after the other, so that partial sums stay in
// the cache and each vector is read from memory once; four of them before anything is written.
void weighted_sum(
    float* out, const float* const* vectors, const float* weights, int64_t count, int64_t size, float* room) {
    int64_t leaves[PARTIAL_SUMS];
    for (int64_t at = 0; at < size; at += SPAN) {
        const int64_t span = size - at < SPAN ? size - at : SPAN;
        int64_t top = 0;  // partial sums in the room, of blocks that grow towards the first
        const auto join = [&] {
            float* __restrict left = room + (top - 2) * SPAN;
            const float* __restrict right = left + SPAN;
            for (int64_t k = 0; k < span; ++k) left[k] += right[k];
            --top;
        };
        for (int64_t i = 0; i < count;) {
            float* __restrict sum = room + top * SPAN;
            const float* __restrict a = vectors[i] + at;
            const float p = weights[i];
            if (i + 4 <= count) {
                const float *__restrict b = vectors[i + 1] + at, *__restrict c = vectors[i + 2] + at,
                            *__restrict d = vectors[i + 3] + at;
                const float q = weights[i + 1], r = weights[i + 2], s = weights[i + 3];
                for (int64_t k = 0; k < span; ++k) sum[k] = (a[k] * p + b[k] * q) + (c[k] * r + d[k] * s);
                leaves[top] = 4;
            } else {
                for (int64_t k = 0; k < span; ++k) sum[k] = a[k] * p;
                leaves[top] = 1;
            }
            i += leaves[top++];
            while (top > 1 && leaves[top - 2] == leaves[top - 1]) {
                join();
                leaves[top - 1] *= 2;
            }
        }
        while (top > 1) join();
        for (int64_t k = 0; k < span; ++k) out[at + k] = room[k];
    }
}

}  // namespace

#define QUOTED_(name) #name
#define QUOTED(name) QUOTED_(name)
#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

extern const Kernels JOINED(kernels_, POLYRHYTHM_KERNELS) = {
    QUOTED(POLYRHYTHM_KERNELS),
    to_lanes,
    to_rows,
    pack,
    unpack,
    forward,
    input_gradient,
    weight_gradient,
    row_gradient,
    bias_gradient,
    packed_input_gradient,
    sparse_forward,
    sparse_input_gradient,
    sparse_weight_gradient,
    squares_weights,
    squares_forward,
    squares_input_gradient,
    squares_weight_gradient,
    weight_squares,
    bias_squares,
    relu,
    relu_gradient,
    drop,
    max_pool,
    max_pool_gradient,
    average_pool,
    average_pool_gradient,
    norm,
    norm_gradient,
    batch_moments,
    batch_norm,
    batch_norm_sums,
    batch_norm_gradient,
    add,
    panels,
    row_product,
    row_weights,
    row_sums,
    recurrence,
    recurrence_gradient,
    cross_entropy,
    binary_cross_entropy,
    contrast,
    update,
    square,
    scale,
    difference,
    lengths,
    weighted_sum,
};
