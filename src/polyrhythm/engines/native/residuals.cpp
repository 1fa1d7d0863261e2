// Sums of maps, and norms.
#include <algorithm>

#include "rounds.h"

// Sets a map to another one of the same shape, or adds it, in their borders excepted. Of the samples there is no gradient.
void Rounds::add_map(int from, const std::vector<float*>& numbers, int to, bool more, int blocks) {
    const Map &source = program_.maps[from], &aim = program_.maps[to];
    if (!numbers[to]) return;
    const int64_t row = int64_t(source.width) * LANES;
    for (int n = 0; n < blocks; ++n)
        for (int c = 0; c < source.channels; ++c)
            for (int y = 0; y < source.height; ++y) {
                const float* values = numbers[from] + int64_t(n) * source.floats() + source.inside(c, y, 0);
                float* there = numbers[to] + int64_t(n) * aim.floats() + aim.inside(c, y, 0);
                if (more)
                    k_.add(values, there, row);
                else
                    std::copy_n(values, row, there);
            }
}

Norm Rounds::norm_of(const Layer& layer, int blocks) const {
    const Map &in = program_.maps[layer.in], &out = program_.maps[layer.out];
    return {in.channels, layer.groups, in.height, in.width, blocks,
            in.inside(0, 0, 0), in.columns() * LANES, in.plane(), in.floats(),
            out.inside(0, 0, 0), out.columns() * LANES, out.plane(), out.floats(), layer.epsilon};
}

// The gradients of a norm's scales and shifts, or the squares of what single samples would give.
void Rounds::norm_weights(const Layer& layer, int index, int blocks, Use& use) {
    const int channels = program_.maps[layer.in].channels;
    const float* lanes = tables_[index].scales;
    for (const bool shift : {false, true}) {
        const int64_t offset = shift ? layer.bias : layer.weights;
        const float* given = lanes + (shift ? int64_t(channels) * LANES * blocks : 0);
        if (offset < 0 || (shift ? still_bias_ : still_weights_)[index]) continue;
        if (use.single) {
            use.sum += k_.square(given, int64_t(channels) * LANES * blocks);
            continue;
        }
        float* gradient = gradient_ + offset;
        for (int c = 0; c < channels; ++c) {
            double sum = 0;
            for (int n = 0; n < blocks; ++n)
                for (int lane = 0; lane < LANES; ++lane) sum += given[(int64_t(n) * channels + c) * LANES + lane];
            gradient[c] = float(sum);
        }
        use_it(use, gradient, offset, channels);
    }
}
