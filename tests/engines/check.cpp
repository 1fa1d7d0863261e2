// Holds every kernel to plain loops in double precision: a step's gradient, read from how far the weights moved,
// against central differences of a forward pass written as the definitions say. Exits with the number of faults.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "program.h"

namespace {

using Numbers = std::vector<double>;

struct Trial {
    const char* name;
    Program program;
    int batch;
    bool tags;
};

// One sample through the layers, by definition.
Numbers outputs(const Program& p, const Numbers& w, Numbers x) {
    for (const Layer& layer : p.layers) {
        const Map &in = p.maps[layer.in], &out = p.maps[layer.out];
        const Window& v = layer.window;
        if (layer.kind == Kind::relu) {
            for (double& number : x) number = std::max(number, 0.0);
            continue;
        }
        Numbers y(out.features());
        for (int o = 0; o < out.channels; ++o)
            for (int r = 0; r < out.height; ++r)
                for (int c = 0; c < out.width; ++c) {
                    double sum = layer.kind == Kind::product && layer.bias >= 0 ? w[layer.bias + o] : 0;
                    double most = -INFINITY;
                    int seen = 0;
                    for (int k = 0; k < in.channels; ++k)
                        for (int i = 0; i < v.height; ++i)
                            for (int j = 0; j < v.width; ++j) {
                                const int a = r * v.down - v.above + i, b = c * v.across - v.beside + j;
                                if (a < 0 || a >= in.height || b < 0 || b >= in.width) continue;
                                const double number = x[(k * in.height + a) * in.width + b];
                                if (layer.kind == Kind::product)
                                    sum += w[layer.weights + ((o * in.channels + k) * v.height + i) * v.width + j] *
                                           number;
                                else if (k == o)
                                    sum += number, most = std::max(most, number), ++seen;
                            }
                    double& here = y[(o * out.height + r) * out.width + c];
                    here = layer.kind == Kind::max_pool ? most : sum;
                    if (layer.kind == Kind::average_pool) here /= layer.whole_area ? v.height * v.width : seen;
                }
        x = y;
    }
    return x;
}

double loss(const Trial& t, const Numbers& w, const std::vector<float>& inputs, const std::vector<int64_t>& labels,
            const std::vector<float>& targets) {
    const int features = t.program.maps[0].features();
    const Objective& objective = t.program.objective;
    double sum = 0;
    for (int b = 0; b < t.batch; ++b) {
        const Numbers y = outputs(t.program, w, Numbers(&inputs[b * features], &inputs[b * features] + features));
        if (t.tags) {
            for (size_t c = 0; c < y.size(); ++c) {
                const double positive = std::max(y[c], 0.0) + std::log1p(std::exp(-std::abs(y[c])));
                sum += objective.weight * (positive - y[c] * targets[b * y.size() + c]);
            }
            continue;
        }
        double total = 0, mean = 0;
        for (double number : y) total += std::exp(number);
        for (double number : y) mean += (std::log(total) - number) / double(y.size());
        sum += (1 - objective.smoothing) * (std::log(total) - y[labels[b]]) + objective.smoothing * mean;
    }
    return sum / t.batch;
}

int faults_of(const Trial& t) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    const int features = t.program.maps[0].features(), classes = t.program.maps.back().features();
    const long size = t.program.size;
    std::vector<float> inputs(t.batch * features), targets(t.batch * classes), weights(size), moment(size);
    std::vector<int64_t> labels(t.batch), order(2 * t.batch);
    for (float& x : inputs) x = normal(random);
    for (float& y : targets) y = float(random() % 2);
    for (float& w : weights) w = 0.3f * normal(random);
    for (int b = 0; b < t.batch; ++b) labels[b] = random() % classes, order[b] = order[t.batch + b] = b;

    const Numbers before(weights.begin(), weights.end());
    Trial unsmoothed = t;
    unsmoothed.program.objective.smoothing = 0;
    const double expected = loss(unsmoothed, before, inputs, labels, targets);
    Numbers slope(size);
    double square = 0;
    for (long i = 0; i < size; ++i) {
        Numbers up = before, down = before;
        const double step = 1e-6;
        up[i] += step, down[i] -= step;
        slope[i] = (loss(t, up, inputs, labels, targets) - loss(t, down, inputs, labels, targets)) / (2 * step);
        square += slope[i] * slope[i];
    }

    // The same batch twice, without a step between. From a moment of zero the moment is then 0.9 times the gradient and
    // once again the gradient, unrounded by the weights.
    const int64_t ends[] = {t.batch, 2 * t.batch};
    const float rates[] = {0.0f, 1.0f};
    int faults = 0;
    for (const std::string& name : kernel_names())
        for (const bool squares : {false, true}) {  // stepped as soon as it is known, and looked at first
            std::fill(moment.begin(), moment.end(), 0.0f);
            std::copy(before.begin(), before.end(), weights.begin());
            Job job{};
            job.weights = weights.data(), job.moment = moment.data(), job.inputs = inputs.data();
            job.labels = labels.data(), job.targets = targets.data(), job.order = order.data();
            job.ends = ends, job.rates = rates, job.steps = 2, job.momentum = 0.9f, job.gradient_squares = squares;
            const Done done = Rounds(t.program, kernels_for(name)).run(job);
            const int so_far = faults;
            if (!(std::abs(done.loss / (2 * t.batch) - expected) < 1e-5 * std::max(1.0, expected))) ++faults;
            if (squares && !(std::abs(done.gradient_squares - 2 * square) < 1e-4 * square)) ++faults;
            for (long i = 0; i < size; ++i) {
                if (!(std::abs(moment[i] - 1.9 * slope[i]) < 3e-5)) ++faults;
                if (!(std::abs(before[i] - 1.9 * slope[i] - weights[i]) < 3e-5)) ++faults;
            }
            if (faults > so_far) std::printf("%s, %s, batch %d\n", name.c_str(), t.name, t.batch);
        }
    return faults;
}

Program images(Objective objective) {
    Program p(2, 9, 8, 640, objective);
    p.product(0, 108, 7, {3, 2, 2, 1, 1, 0});  // 7 × 5 × 7, in a halo of 2 for the next
    p.relu();
    p.product(128, -1, 4, {3, 3, 1, 1, 2, 2});  // 4 × 7 × 9
    p.pool(Kind::max_pool, {3, 3, 2, 2, 1, 1}, true);  // 4 × 4 × 5
    p.relu();
    p.pool(Kind::average_pool, {2, 3, 1, 2, 1, 1}, false);  // 4 × 5 × 3
    p.linear(384, 624, 4);
    return p;
}

Program rows(Objective objective) {
    Program p(21, 1, 1, 576, objective);
    p.linear(0, 294, 14);
    p.relu();
    p.linear(320, 496, 12);
    p.relu();
    p.linear(512, 560, 3);
    return p;
}

// The tree in words: split off the largest power of two below the count, sum both sides, add.
float summed(const std::vector<std::vector<float>>& vectors, const std::vector<float>& weights, long k, long i, long n) {
    if (n == 1) return vectors[i][k] * weights[i];
    long half = 1;
    while (2 * half < n) half *= 2;
    return summed(vectors, weights, k, i, half) + summed(vectors, weights, k, i + half, n - half);
}

int faults_of_sums() {
    int faults = 0;
    std::vector<float> room(SPAN * PARTIAL_SUMS);
    for (const long count : {1, 3, 4, 6, 23})
        for (const long size : {1L, SPAN - 1, SPAN, 2 * SPAN + 5}) {
            std::vector<std::vector<float>> vectors(count, std::vector<float>(size));
            std::vector<float> weights(count), out(size);
            std::vector<const float*> from;
            for (long i = 0; i < count; ++i) {
                for (long k = 0; k < size; ++k) vectors[i][k] = std::sin(float(i * size + k));
                weights[i] = std::cos(float(i));
                from.push_back(vectors[i].data());
            }
            for (const std::string& name : kernel_names()) {
                kernels_for(name).weighted_sum(out.data(), from.data(), weights.data(), count, size, room.data());
                const int so_far = faults;
                for (long k = 0; k < size; ++k) faults += out[k] != summed(vectors, weights, k, 0, count);
                if (faults > so_far) std::printf("%s, a sum of %ld vectors of %ld\n", name.c_str(), count, size);
            }
        }
    return faults;
}

}  // namespace

int main() {
    int faults = faults_of_sums();
    const Objective classes{Loss::cross_entropy, 0, 1}, smoothed{Loss::cross_entropy, 0.2f, 1};
    const Objective tags{Loss::binary_cross_entropy, 0, 0.25f};
    for (const int batch : {1, 16, 37}) {
        faults += faults_of({"images", images(smoothed), batch, false});
        faults += faults_of({"tags of images", images(tags), batch, true});
        faults += faults_of({"rows", rows(classes), batch, false});
    }
    return faults > 255 ? 255 : faults;
}
