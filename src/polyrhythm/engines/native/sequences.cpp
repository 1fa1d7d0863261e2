// Layers over sequences: embeddings, the way of an LSTM, and its last state.
#include <algorithm>

#include "plan.h"
#include "rounds.h"

namespace {

constexpr int TOGETHER = 16;  // pixels

// Calls f(token, registers of its vector, lane) for each sample's tokens in turn: block by block, token by token.
template <class F>
void each_token(const Map& in, const Map& out, const float* tokens, int count, F f) {
    for (int first = 0; first < count; first += LANES) {
        const int64_t block = first / LANES;
        for (int x = 0; x < out.width; ++x)
            for (int lane = 0; lane < std::min(LANES, count - first); ++lane)
                f(int64_t(tokens[block * in.floats() + in.inside(x, 0, 0) + lane]),
                  block * out.floats() + out.inside(0, 0, x) + lane, first + lane);
    }
}

}  // namespace

void Rounds::embed(const Layer& layer, const float* weights, int count) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    float* to = values_[layer.out];
    each_token(in, out, values_[layer.in], count, [&](int64_t token, int64_t at, int) {
        const float* vector = weights + layer.weights + token * out.channels;
        for (int c = 0; c < out.channels; ++c) to[at + c * LANES] = vector[c];
    });
}

void Rounds::embedding_gradient(const Layer& layer, int count, float* gradient) const {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    const float* from = gradients_[layer.out];
    std::fill_n(gradient, int64_t(layer.tokens) * out.channels, 0.0f);
    each_token(in, out, values_[layer.in], count, [&](int64_t token, int64_t at, int) {
        float* vector = gradient + token * out.channels;
        for (int c = 0; c < out.channels; ++c) vector[c] += from[at + c * LANES];
    });
}

// The squares of each sample's own gradient.
double Rounds::embedding_squares(const Layer& layer, int count) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    const float* from = gradients_[layer.out];
    float* gradient = gradient_ + layer.weights;
    const int64_t size = int64_t(layer.tokens) * out.channels;
    double sum = 0;
    for (int sample = 0; sample < count; ++sample) {
        std::fill_n(gradient, size, 0.0f);
        each_token(in, out, values_[layer.in], count, [&](int64_t token, int64_t at, int whose) {
            if (whose != sample) return;
            for (int c = 0; c < out.channels; ++c) gradient[token * out.channels + c] += from[at + c * LANES];
        });
        sum += k_.square(gradient, size);
    }
    return sum;
}

void Rounds::tabulate_recurrence(const Layer& layer, Tables& t, int blocks) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    for (int c = 0; c < out.channels; ++c) t.tap.push_back(out.padded(c, 0, 0));
    for (int n = 0; n < blocks; ++n)
        for (int x = 0; x < in.width; ++x) {
            t.every.push_back(n * in.floats() + in.inside(0, 0, x));
            if (!x) continue;
            t.column.push_back(n * out.floats() + out.inside(0, 0, x - 1));
            t.place.push_back(t.every.back());
        }
    t.product = {in.channels, out.channels, 1, t.tap.data(), nullptr, nullptr, in.plane()};
    t.later = {in.channels, out.channels, in.width - 1, t.tap.data(), t.column.data(), t.place.data(), in.plane()};
    t.steps = {in.channels, out.channels, in.width, t.tap.data(), nullptr, t.every.data(), in.plane()};
    t.pitch = (out.channels + LANES - 1) / LANES * LANES;
    t.cells = aligned(t.room_cells, size_t(2) * out.floats() * blocks);
    t.carry = aligned(t.room_carry, size_t(out.channels) * LANES * blocks);
    t.panels = aligned(t.room_panels, size_t(in.channels + TALL) * (out.channels + TALL));
}

// Some pixels after the others: their numbers stay near the processor while all weights pass by.
void Rounds::along_sequence(const Product& product, const float* weights, const float* bias, const float* in, float* out,
                            int count) const {
    const int columns = (count + LANES - 1) / LANES * product.columns;
    for (int j = 0; j < columns; j += TOGETHER) {
        Product some = product;
        some.columns = std::min(TOGETHER, columns - j), some.column += j, some.place += j;
        k_.forward(some, weights, bias, in, out, 1);
    }
}

void Rounds::recur(const Layer& layer, Tables& t, const float* weights, int blocks) {
    const Map& out = program_.maps[layer.out];
    const float* bias = layer.bias < 0 ? nullptr : weights + layer.bias;
    k_.panels(weights + layer.weights, t.product.rows, out.channels, out.channels, 1, t.panels);
    k_.recurrence({out.channels, out.width, blocks}, t.panels, bias, values_[layer.in], t.cells, values_[layer.out]);
}

void Rounds::recurrence_gradient(const Layer& layer, Tables& t, const float* weights, int blocks) {
    const Map& out = program_.maps[layer.out];
    k_.panels(weights + layer.weights, out.channels, t.product.rows, 1, out.channels, t.panels);
    k_.recurrence_gradient({out.channels, out.width, blocks}, t.panels, values_[layer.in], t.cells,
                           gradients_[layer.out], t.carry, gradients_[layer.in]);
}

// The gradient of weights that are the same in each pixel.
void Rounds::sequence_weights(
    const Product& p, const Layer& layer, const float* in, const float* dout, int count, Use& use) {
    const int blocks = (count + LANES - 1) / LANES, pitch = (p.taps + LANES - 1) / LANES * LANES;
    for (int j = 0; j < blocks * p.columns; ++j)
        k_.to_rows(in + p.column[j], p.tap, p.taps, rows_ + int64_t(j) * LANES * pitch, pitch);
    float* gradient = gradient_ + layer.weights;
    k_.sample_gradient(p, rows_, pitch, dout, blocks, count - (blocks - 1) * LANES, gradient);
    use_it(use, gradient, layer.weights, int64_t(p.rows) * p.taps);
}

// The gradient of a recurrence's weights, or the squares of what single samples would give.
void Rounds::recurrence_weights(const Layer& layer, int index, int count, Use& use) {
    const Tables& t = tables_[index];
    const int blocks = (count + LANES - 1) / LANES;
    const float *states = values_[layer.out], *dgates = gradients_[layer.in];
    if (use.single) {
        use.sum += k_.weight_squares(t.later, states, dgates, blocks);
        if (layer.bias >= 0) use.sum += k_.bias_squares(t.steps, dgates, blocks);
        return;
    }
    if (!still_weights_[index]) sequence_weights(t.later, layer, states, dgates, count, use);
    if (layer.bias < 0 || still_bias_[index]) return;
    k_.bias_gradient(t.steps, dgates, gradient_ + layer.bias, blocks);
    use_it(use, gradient_ + layer.bias, layer.bias, t.product.rows);
}

void Rounds::last(const Layer& layer, int blocks) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    for (int n = 0; n < blocks; ++n)
        std::copy_n(values_[layer.in] + int64_t(n) * in.floats() + in.inside(0, 0, in.width - 1), out.floats(),
                    values_[layer.out] + int64_t(n) * out.floats());
}

// Of all other states nothing comes of here, and their gradients were set to zero before.
void Rounds::last_gradient(const Layer& layer, int blocks) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    for (int n = 0; n < blocks; ++n)
        std::copy_n(gradients_[layer.out] + int64_t(n) * out.floats(), out.floats(),
                    gradients_[layer.in] + int64_t(n) * in.floats() + in.inside(0, 0, in.width - 1));
}
