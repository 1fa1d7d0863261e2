// Layers over sequences, whose numbers lie in rows: embeddings, linear layers, the way of an LSTM, and its last state.
#include <algorithm>

#include "plan.h"
#include "rounds.h"

namespace {

// Calls f(token, where its vector's row begins, sample) for the tokens of all samples, pixel by pixel.
template <class F>
void each_token(const Map& in, const Map& out, const float* tokens, int count, F f) {
    for (int x = 0; x < out.width; ++x)
        for (int b = 0; b < count; ++b)
            f(int64_t(tokens[int64_t(b / LANES) * in.floats() + in.inside(x, 0, 0) + b % LANES]),
              (int64_t(x) * count + b) * out.row().floats, b);
}

// Calls f(first number of a part, where it lies in its row) for each part of a row.
template <class F>
void each_part(const Row& row, F f) {
    for (int part = 0; part < row.parts; ++part) f(part * row.each, part * row.part);
}

// Calls f(number of a row of samples, where it lies in a sequence) for each part of each pixel of each sample.
template <class F>
void each_row(const Map& map, int count, F f) {
    const Row row = map.row();
    for (int b = 0; b < count; ++b)
        for (int x = 0; x < map.width; ++x)
            each_part(row, [&](int c, int place) {
                f((int64_t(b) * map.width + x) * map.channels + c, (int64_t(x) * count + b) * row.floats + place);
            });
}

constexpr int WIDEST = 64;  // panel of any processor

// Floats of weights in panels.
size_t in_panels(const Row& across, const Row& down) {
    return size_t(across.floats + WIDEST - 1) / WIDEST * WIDEST * down.floats;
}

}  // namespace

void Rounds::tabulate_sequence(const Layer& layer, Tables& t, int blocks) {
    const bool recurs = layer.kind == Kind::recurrence;
    const Map &given = program_.maps[recurs ? layer.out : layer.in], &made = program_.maps[recurs ? layer.in : layer.out];
    t.product.rows = made.channels, t.product.taps = given.channels;
    t.panels = aligned(t.room_panels, std::max(in_panels(made.row(), given.row()), in_panels(given.row(), made.row())));
    t.bias = aligned(t.room_bias, made.row().floats);
    if (!recurs) return;
    t.cells = aligned(t.room_cells, size_t(2) * given.floats() * blocks);
    t.carry = aligned(t.room_carry, size_t(given.row().floats) * LANES * blocks);
}

void Rounds::embed(const Layer& layer, const float* weights, int count) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    float* to = values_[layer.out];
    each_token(in, out, values_[layer.in], count, [&](int64_t token, int64_t at, int) {
        std::copy_n(weights + layer.weights + token * out.channels, out.channels, to + at);
    });
}

// The gradient of an embedding, or of one sample's part of it.
void Rounds::embedding_gradient(const Layer& layer, int count, float* gradient, int sample) const {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    const float* from = gradients_[layer.out];
    std::fill_n(gradient, int64_t(layer.tokens) * out.channels, 0.0f);
    each_token(in, out, values_[layer.in], count, [&](int64_t token, int64_t at, int whose) {
        if (sample >= 0 && whose != sample) return;
        float* vector = gradient + token * out.channels;
        for (int c = 0; c < out.channels; ++c) vector[c] += from[at + c];
    });
}

// The squares of each sample's own gradient.
double Rounds::embedding_squares(const Layer& layer, int count) {
    float* gradient = gradient_ + layer.weights;
    double sum = 0;
    for (int sample = 0; sample < count; ++sample) {
        embedding_gradient(layer, count, gradient, sample);
        sum += k_.square(gradient, int64_t(layer.tokens) * program_.maps[layer.out].channels);
    }
    return sum;
}

// A layer's bias as it is added to rows, or null.
const float* Rounds::row_bias(const Layer& layer, const Tables& t, const Row& row, const float* weights) const {
    if (layer.bias < 0) return nullptr;
    each_part(row, [&](int c, int place) { std::copy_n(weights + layer.bias + c, row.each, t.bias + place); });
    return t.bias;
}

// A linear layer over a sequence.
void Rounds::along_sequence(const Layer& layer, const Tables& t, const float* weights, int count) {
    const Map& in = program_.maps[layer.in];
    const Row from = in.row(), to = program_.maps[layer.out].row();
    k_.panels(weights + layer.weights, to, in.channels, from, 1, t.panels);
    k_.row_product({in.width * count, from.floats, to.floats, from.floats, to.floats, false},
                   values_[layer.in], t.panels, row_bias(layer, t, to, weights), values_[layer.out]);
}

void Rounds::back_along_sequence(const Layer& layer, const Tables& t, const float* weights, int count) {
    const Map& in = program_.maps[layer.in];
    const Row from = in.row(), to = program_.maps[layer.out].row();
    k_.panels(weights + layer.weights, from, 1, to, in.channels, t.panels);
    k_.row_product({in.width * count, to.floats, from.floats, to.floats, from.floats, false},
                   gradients_[layer.out], t.panels, nullptr, gradients_[layer.in]);
}

void Rounds::recur(const Layer& layer, const Tables& t, const float* weights, int count) {
    const Map &gates = program_.maps[layer.in], &states = program_.maps[layer.out];
    k_.panels(weights + layer.weights, gates.row(), states.channels, states.row(), 1, t.panels);
    k_.recurrence({states.row().floats, states.width, count}, t.panels, row_bias(layer, t, gates.row(), weights),
                  values_[layer.in], t.cells, values_[layer.out]);
}

void Rounds::recurrence_gradient(const Layer& layer, const Tables& t, const float* weights, int count) {
    const Map &gates = program_.maps[layer.in], &states = program_.maps[layer.out];
    k_.panels(weights + layer.weights, states.row(), 1, gates.row(), states.channels, t.panels);
    k_.recurrence_gradient({states.row().floats, states.width, count}, t.panels, values_[layer.in], t.cells,
                           gradients_[layer.out], t.carry, gradients_[layer.in]);
}

// The gradients of the weights and the bias of a layer over a sequence, or the squares of what single samples would give.
// A recurrence multiplies the states before: its first pixel has none.
void Rounds::sequence_gradient(const Layer& layer, int index, int count, Use& use) {
    const Tables& t = tables_[index];
    const bool recurs = layer.kind == Kind::recurrence;
    const int given = recurs ? layer.out : layer.in, made = recurs ? layer.in : layer.out;
    const Row from = program_.maps[given].row(), to = program_.maps[made].row();
    const int steps = program_.maps[made].width, taps = t.product.taps;
    float *weights = gradient_ + layer.weights, *bias = gradient_ + layer.bias;
    const int64_t size = int64_t(t.product.rows) * taps;
    // From all rows, or from one of so many, and the same of a bias.
    const auto weigh = [&](int first, int every) {
        const float* dout = gradients_[made] + (int64_t(recurs) * count + first) * to.floats;
        std::fill_n(weights, size, 0.0f);
        each_part(to, [&](int row, int place) {
            k_.row_weights((steps - recurs) * count / every, to.each, dout + place, int64_t(every) * to.floats,
                           values_[given] + int64_t(first) * from.floats, int64_t(every) * from.floats, taps,
                           weights + int64_t(row) * taps);
        });
    };
    const auto sum = [&](int first, int every) {
        k_.row_sums(steps * count / every, gradients_[made] + int64_t(first) * to.floats,
                    int64_t(every) * to.floats, to.floats, t.bias);
        each_part(to, [&](int row, int place) { std::copy_n(t.bias + place, to.each, bias + row); });
    };
    for (int sample = 0; use.single && sample < count; ++sample) {
        weigh(sample, count);
        use.sum += k_.square(weights, size);
        if (layer.bias < 0) continue;
        sum(sample, count);
        use.sum += k_.square(bias, t.product.rows);
    }
    if (use.single) return;
    if (!still_weights_[index]) {
        weigh(0, 1);
        use_it(use, weights, layer.weights, size);
    }
    if (layer.bias < 0 || still_bias_[index]) return;
    sum(0, 1);
    use_it(use, bias, layer.bias, t.product.rows);
}

// The last row of each sample into its lane.
void Rounds::last(const Layer& layer, int count) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    const float *from = values_[layer.in] + int64_t(in.width - 1) * count * in.row().floats, *rows[LANES];
    for (int first = 0; first < count; first += LANES) {
        for (int b = 0; b < LANES; ++b)
            rows[b] = first + b < count ? from + int64_t(first + b) * in.row().floats : blank_.data();
        k_.to_lanes(rows, out.channels, place_[layer.out].data(), values_[layer.out] + int64_t(first / LANES) * out.floats());
    }
}

// Of all other states nothing comes of here, and their gradients were set to zero before.
void Rounds::last_gradient(const Layer& layer, int count) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    float* to = gradients_[layer.in] + int64_t(in.width - 1) * count * in.row().floats;
    for (int first = 0; first < count; first += LANES)
        k_.to_rows(gradients_[layer.out] + int64_t(first / LANES) * out.floats(), place_[layer.out].data(), out.channels,
                   to + int64_t(first) * in.row().floats, in.row().floats);
}

// A sequence's numbers, sample by sample.
void Rounds::take_rows(int map, int count, float* rows) const {
    const Map& m = program_.maps[map];
    each_row(m, count, [&](int64_t i, int64_t at) { std::copy_n(values_[map] + at, m.row().each, rows + i); });
}

// Adds gradients, sample by sample, to a sequence's.
void Rounds::give_rows(int map, int count, const float* rows) const {
    const Map& m = program_.maps[map];
    each_row(m, count, [&](int64_t i, int64_t at) {
        for (int k = 0; k < m.row().each; ++k) gradients_[map][at + k] += rows[i + k];
    });
}
