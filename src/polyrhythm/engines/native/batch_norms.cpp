// Norms over whole batches. In training a channel is normed by its own moments over the batch's samples and pixels, and
// its running statistics move towards these; elsewhere, and where a norm is not live, by the running ones.
#include <cmath>
#include <stdexcept>

#include "rounds.h"

namespace {

double sum_of(const float* lanes) {
    double sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += lanes[lane];
    return sum;
}

}  // namespace

Channel Rounds::channel_of(const Layer& layer, int count) const {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    const int blocks = (count + LANES - 1) / LANES;
    return {in.height, in.width, blocks, count - (blocks - 1) * LANES, in.columns() * LANES, out.columns() * LANES,
            in.floats(), out.floats(), 0, 0, 0, 0, false};
}

void Rounds::batch_norm(const Layer& layer, int index, const Pass& pass, int count, bool relu) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    Channel channel = channel_of(layer, count);
    const bool live = layer.live && !pass.still;
    const double numbers = double(count) * in.height * in.width;
    if (live && numbers < 2) throw std::invalid_argument("Expected more than 1 value per channel when training");
    float *mean = pass.statistics + layer.statistics, *variance = mean + in.channels;
    for (int c = 0; c < in.channels; ++c) {
        const float* from = values_[layer.in] + in.inside(c, 0, 0);
        double moments[2] = {mean[c], variance[c]};
        if (live) {
            const double moves = layer.momentum;
            k_.batch_moments(channel, from, moments);
            mean[c] = float(moves * moments[0] + (1 - moves) * mean[c]);
            variance[c] = float(moves * moments[1] * numbers / (numbers - 1) + (1 - moves) * variance[c]);
        }
        const double by = 1 / std::sqrt(moments[1] + double(layer.epsilon));
        channel.mean = float(moments[0]), channel.by = float(by), channel.relu = relu;
        channel.factor = layer.weights < 0 ? channel.by : float(by * pass.weights[layer.weights + c]);
        channel.shift = layer.bias < 0 ? 0.0f : pass.weights[layer.bias + c];
        tables_[index].channels[c] = channel;
        k_.batch_norm(channel, from, values_[layer.out] + out.inside(c, 0, 0));
    }
}

// With u what is normed and y = scale u + shift, over n numbers of a channel:
//     din = scale / root (dout - sum of dout / n - u sum of (dout u) / n)
// Where the running statistics normed, these do not depend on the inputs, and the first of the three is all.
void Rounds::batch_norm_gradient(const Layer& layer, int index, const Pass& pass, int count, bool relu, float* din,
                                 Use& use) {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    const bool live = layer.live && !pass.still;
    const bool scales = layer.weights >= 0 && !still_weights_[index], shifts = layer.bias >= 0 && !still_bias_[index];
    const double numbers = double(count) * in.height * in.width;
    alignas(64) float lanes[2 * LANES];
    for (int c = 0; c < in.channels; ++c) {
        const float *from = values_[layer.in] + in.inside(c, 0, 0), *dout = gradients_[layer.out] + out.inside(c, 0, 0);
        Channel channel = tables_[index].channels[c];
        channel.relu = relu;
        double of_scale = 0, of_shift = 0;
        if (use.single) {
            squares_of_norm(channel, from, dout, scales, shifts, use);
        } else if (live || scales || shifts) {
            k_.batch_norm_sums(channel, from, dout, lanes);
            of_scale = sum_of(lanes), of_shift = sum_of(lanes + LANES);
            if (scales) gradient_[layer.weights + c] = float(of_scale);
            if (shifts) gradient_[layer.bias + c] = float(of_shift);
        }
        if (!din) continue;
        const double factor = channel.factor;
        const double apart = live ? -factor * channel.by * of_scale / numbers : 0;
        const double plus = live ? -factor * of_shift / numbers : 0;
        k_.batch_norm_gradient(channel, float(apart), float(plus), from, dout, din + in.inside(c, 0, 0));
    }
    if (use.single) return;
    if (scales) use_it(use, gradient_ + layer.weights, layer.weights, in.channels);
    if (shifts) use_it(use, gradient_ + layer.bias, layer.bias, in.channels);
}

// The squares of what each sample gives of a channel's scale and shift.
void Rounds::squares_of_norm(const Channel& channel, const float* in, const float* dout, bool scales, bool shifts,
                             Use& use) {
    alignas(64) float lanes[2 * LANES];
    for (int n = 0; n < channel.blocks; ++n) {
        Channel one = channel;
        one.blocks = 1, one.last = n + 1 < channel.blocks ? LANES : channel.last;
        k_.batch_norm_sums(one, in + int64_t(n) * channel.in_block, dout + int64_t(n) * channel.out_block, lanes);
        if (scales) use.sum += k_.square(lanes, LANES);
        if (shifts) use.sum += k_.square(lanes + LANES, LANES);
    }
}
