// Holds every kernel to plain loops in double precision: a step's gradient, read from how far the weights moved,
// against central differences of a forward pass written as the definitions say; and so the gradient of MOON's term, of
// single samples, and of a batch in two halves; a step of Adam; and what the layers make of a sample. Norms over a batch
// have trials of their own, since a sample's outputs depend on the others. Exits with the number of faults.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rounds.h"

namespace {

using Numbers = std::vector<double>;

struct Trial {
    const char* name;
    Program program;
    int batch;
    bool tags;
};

// One sample through a layer over a sequence, whose numbers are pixel by pixel.
Numbers along(const Program& p, const Layer& layer, const Numbers& w, const Numbers& x) {
    const int before = p.maps[layer.in].channels, after = p.maps[layer.out].channels, steps = p.maps[layer.in].width;
    if (layer.kind == Kind::last) return Numbers(x.end() - after, x.end());
    Numbers y, h(after), cell(after);
    if (layer.kind == Kind::embedding)
        for (double token : x)
            for (int c = 0; c < after; ++c) y.push_back(w[layer.weights + int(token) * after + c]);
    for (int t = 0; layer.kind == Kind::product && t < steps; ++t)
        for (int o = 0; o < after; ++o) {
            y.push_back(layer.bias < 0 ? 0 : w[layer.bias + o]);
            for (int c = 0; c < before; ++c) y.back() += w[layer.weights + o * before + c] * x[t * before + c];
        }
    for (int t = 0; layer.kind == Kind::recurrence && t < steps; ++t) {
        Numbers gates(&x[t * before], &x[t * before] + before);
        for (int o = 0; o < before; ++o) {
            gates[o] += layer.bias < 0 ? 0 : w[layer.bias + o];
            for (int c = 0; c < after; ++c) gates[o] += w[layer.weights + o * after + c] * h[c];
        }
        const auto open = [&](int o) { return 1 / (1 + std::exp(-gates[o])); };
        for (int c = 0; c < after; ++c) {
            cell[c] = open(after + c) * cell[c] + open(c) * std::tanh(gates[2 * after + c]);
            h[c] = open(3 * after + c) * std::tanh(cell[c]);
        }
        y.insert(y.end(), h.begin(), h.end());
    }
    return y;
}

// One sample, normed by groups of channels.
Numbers normed(const Layer& layer, const Map& in, const Numbers& w, Numbers x) {
    const int pixels = in.height * in.width, each = in.channels / layer.groups * pixels;
    for (int group = 0; group < layer.groups; ++group) {
        double mean = 0, variance = 0;
        for (int i = 0; i < each; ++i) mean += x[group * each + i] / each;
        for (int i = 0; i < each; ++i) variance += std::pow(x[group * each + i] - mean, 2) / each;
        for (int i = group * each; i < (group + 1) * each; ++i) {
            x[i] = (x[i] - mean) / std::sqrt(variance + layer.epsilon);
            if (layer.weights >= 0) x[i] = x[i] * w[layer.weights + i / pixels] + w[layer.bias + i / pixels];
        }
    }
    return x;
}

// One sample through some of the layers, by definition.
Numbers outputs(const Program& p, const Numbers& w, Numbers x, size_t end, size_t begin = 0) {
    std::vector<Numbers> known(p.maps.size());
    known[p.map_at(int(begin))] = x;
    for (size_t l = begin; l < end; known[p.layers[l++].out] = x) {
        const Layer& layer = p.layers[l];
        const Map &in = p.maps[layer.in], &out = p.maps[layer.out];
        const Window& v = layer.window;
        x = known[layer.in];
        if (layer.kind == Kind::from) continue;
        if (layer.kind == Kind::sum) {
            for (size_t i = 0; i < x.size(); ++i) x[i] += known[layer.other][i];
            continue;
        }
        if (layer.kind == Kind::norm) {
            x = normed(layer, in, w, x);
            continue;
        }
        if (layer.kind == Kind::relu) {
            for (double& number : x) number = std::max(number, 0.0);
            continue;
        }
        if (in.sequence || out.sequence) {
            x = along(p, layer, w, x);
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

// What a trial is tried on.
struct Data {
    std::vector<float> inputs, targets, near, far;
    std::vector<int64_t> labels, order;

    Numbers sample(const Program& p, int b) const {
        const int features = p.maps[0].features();
        return Numbers(&inputs[b * features], &inputs[b * features] + features);
    }
};

// The losses of outputs, with and without smoothing.
std::pair<double, double> losses(const Trial& t, const Data& data, const Numbers& y, int b) {
    const Objective& objective = t.program.objective;
    if (t.tags) {
        double sum = 0;
        for (size_t c = 0; c < y.size(); ++c) {
            const double positive = std::max(y[c], 0.0) + std::log1p(std::exp(-std::abs(y[c])));
            sum += objective.weight * (positive - y[c] * data.targets[b * y.size() + c]);
        }
        return {sum, sum};
    }
    double total = 0, mean = 0;
    for (double number : y) total += std::exp(number);
    for (double number : y) mean += (std::log(total) - number) / double(y.size());
    const double plain = std::log(total) - y[data.labels[b]];
    return {(1 - objective.smoothing) * plain + objective.smoothing * mean, plain};
}

double cosine(const Numbers& z, const float* y) {
    double zz = 0, yy = 0, zy = 0;
    for (size_t i = 0; i < z.size(); ++i) zz += z[i] * z[i], yy += double(y[i]) * y[i], zy += z[i] * y[i];
    return zy / std::sqrt(zz) / std::sqrt(yy);
}

// MOON's term of one representation, of strength 2 and temperature 0.5.
double term(const Data& data, const Numbers& z, int b) {
    const double gap = cosine(z, &data.far[b * z.size()]) - cosine(z, &data.near[b * z.size()]);
    return 2 * std::log1p(std::exp(gap / 0.5));
}

// What a trial should come to.
struct Expected {
    double loss = 0, single = 0;  // the mean loss, and the mean squared norm of a sample's own gradient; both unsmoothed
    Numbers slope, contrasted;    // the gradient, and with MOON's term
};

Expected expected_of(const Trial& t, const Data& data, const Numbers& at, int place) {
    struct Values {
        double smoothed, plain, term;
    };
    const auto values = [&](const Numbers& w, int b) -> Values {
        const Numbers z = outputs(t.program, w, data.sample(t.program, b), place);
        const auto [smoothed, plain] = losses(t, data, outputs(t.program, w, z, t.program.layers.size(), place), b);
        return {smoothed, plain, term(data, z, b)};
    };
    const double step = 1e-6;
    Expected e{0, 0, Numbers(at.size()), Numbers(at.size())};
    for (int b = 0; b < t.batch; ++b) e.loss += values(at, b).plain / t.batch;
    for (size_t i = 0; i < at.size(); ++i) {
        Numbers up = at, down = at;
        up[i] += step, down[i] -= step;
        for (int b = 0; b < t.batch; ++b) {
            const Values above = values(up, b), below = values(down, b);
            const double own = (above.plain - below.plain) / (2 * step);
            e.single += own * own / t.batch;
            e.slope[i] += (above.smoothed - below.smoothed) / (2 * step) / t.batch;
            e.contrasted[i] += (above.smoothed + above.term - below.smoothed - below.term) / (2 * step) / t.batch;
        }
    }
    return e;
}

int width_at(const Program& p, int place) { return p.maps[p.map_at(place)].features(); }

Samples samples_of(const Data& data) {
    return {data.inputs.data(), data.labels.data(), data.targets.data(), data.order.data()};
}

// What the first layers make of samples, at every place.
int faults_of_looking(const Trial& t, const Data& data, const std::vector<float>& weights, const Kernels& kernels) {
    const Numbers w(weights.begin(), weights.end());
    int faults = 0;
    for (int place = 0; place <= int(t.program.layers.size()); ++place) {
        const int width = width_at(t.program, place);
        std::vector<float> found(size_t(2) * t.batch * width + 1, 7.0f);
        Rounds(t.program, kernels).look(weights.data(), samples_of(data), 2 * t.batch, {place, found.data()});
        for (int b = 0; b < 2 * t.batch; ++b) {
            const Numbers y = outputs(t.program, w, data.sample(t.program, int(data.order[b])), place);
            for (int f = 0; f < width; ++f)
                if (!(std::abs(found[b * width + f] - y[f]) < 1e-4)) ++faults;
        }
        if (found.back() != 7.0f) ++faults;
    }
    return faults;
}

// A batch in two halves, with a gradient added in between: that of MOON's term, found at the representation itself.
int faults_in_halves(
    const Trial& t, const Data& data, const std::vector<float>& weights, const Kernels& kernels, int place,
    const Numbers& slope) {
    const int width = width_at(t.program, place);
    std::vector<float> z(t.batch * width), more(t.batch * width), gradient(weights.size(), 0.0f);
    Rounds rounds(t.program, kernels);
    rounds.ahead(weights.data(), samples_of(data), t.batch, 0, 0, {{place, z.data()}});
    for (int b = 0; b < t.batch; ++b)
        for (int f = 0; f < width; ++f) {
            Numbers up(&z[b * width], &z[b * width] + width), down = up;
            up[f] += 1e-5, down[f] -= 1e-5;
            more[b * width + f] = float((term(data, up, b) - term(data, down, b)) / 2e-5 / t.batch);
        }
    rounds.back(weights.data(), {{place, more.data()}}, gradient.data());
    int faults = 0;
    for (size_t i = 0; i < slope.size(); ++i)
        if (!(std::abs(gradient[i] - slope[i]) < 3e-5)) ++faults;
    return faults;
}

// Two steps of AdamW on the same gradient, as far as the first leaves it the same: at a rate of zero.
int faults_of_adam(const Trial& t, const Data& data, const Numbers& before, const Kernels& kernels, const Numbers& slope) {
    std::vector<float> weights(before.begin(), before.end()), first(before.size()), second(before.size());
    const int64_t ends[] = {t.batch, 2 * t.batch};
    const float rates[] = {0.0f, 0.5f};
    Job job{};
    job.weights = weights.data(), job.moment = first.data(), job.second = second.data();
    job.samples = samples_of(data), job.ends = ends, job.rates = rates, job.steps = 2;
    job.momentum = 0.8f, job.beta2 = 0.9, job.epsilon = 0.1, job.taken = 3;
    job.decay = 0.2f, job.decoupled = true;
    Rounds(t.program, kernels).run(job);
    int faults = 0;
    for (size_t i = 0; i < before.size(); ++i) {
        const double g = slope[i], m = 0.2 * g * 1.8, s = 0.1 * g * g * 1.9;
        const double root = std::sqrt(s / (1 - std::pow(0.9, 5))), moved = 0.5 * m / (1 - std::pow(0.8, 5)) / (root + 0.1);
        const bool padding = g == 0;  // is in no layer, and stays
        const double expected = padding ? before[i] : 0.9 * before[i] - moved;
        if (!padding && !(std::abs(weights[i] - expected) < 1e-4)) ++faults;
        if (!(std::abs(first[i] - m) < 3e-5 && std::abs(second[i] - s) < 3e-5)) ++faults;
    }
    return faults;
}

int faults_of(const Trial& t) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    const int features = t.program.maps[0].features(), classes = t.program.maps.back().features();
    const int64_t size = t.program.size;
    int place = int(t.program.layers.size()) - 1;  // of a representation: before the last layer that works in place
    while (t.program.layers[place].kind != Kind::relu) --place;
    const int width = width_at(t.program, place);
    std::vector<float> weights(size), moment(size);
    Data data;
    data.inputs.resize(t.batch * features), data.targets.resize(t.batch * classes);
    data.near.resize(t.batch * width), data.far.resize(t.batch * width);
    data.labels.resize(t.batch), data.order.resize(2 * t.batch);
    const int tokens = t.program.layers[0].tokens;
    for (float& x : data.inputs) x = tokens ? float(random() % tokens) : normal(random);
    for (float& y : data.targets) y = float(random() % 2);
    for (float& w : weights) w = 0.3f * normal(random);
    for (int b = 0; b < t.batch; ++b)
        data.labels[b] = random() % classes, data.order[b] = data.order[t.batch + b] = b;
    for (float& x : data.near) x = normal(random);
    for (float& x : data.far) x = normal(random);

    const Numbers before(weights.begin(), weights.end());
    const Expected e = expected_of(t, data, before, place);
    double square = 0;
    for (double number : e.slope) square += number * number;

    // The same batch twice, without a step between. From a moment of zero the moment is then 0.9 times the gradient and
    // once again the gradient, unrounded by the weights.
    const int64_t ends[] = {t.batch, 2 * t.batch};
    const float rates[] = {0.0f, 1.0f};
    int faults = 0;
    for (const std::string& name : kernel_names()) {
        const Kernels& kernels = kernels_for(name);
        const int so_far = faults;
        std::copy(before.begin(), before.end(), weights.begin());
        const double trace = Rounds(t.program, kernels).trace(weights.data(), samples_of(data), 2 * t.batch);
        if (!(std::abs(trace - 2 * t.batch * e.single) < 1e-4 * trace)) ++faults;
        faults += faults_of_looking(t, data, weights, kernels);
        faults += faults_in_halves(t, data, weights, kernels, place, e.contrasted);
        faults += faults_of_adam(t, data, before, kernels, e.slope);
        if (faults > so_far) std::printf("%s, %s, batch %d, other passes\n", name.c_str(), t.name, t.batch);
        for (const int kind : {0, 1, 2, 3}) {  // plain, squares, clipped at more than it is, MOON's term
            const bool squares = kind == 1 || kind == 2;
            const Numbers& wanted = kind == 3 ? e.contrasted : e.slope;
            std::fill(moment.begin(), moment.end(), 0.0f);
            std::copy(before.begin(), before.end(), weights.begin());
            Job job{};
            job.weights = weights.data(), job.moment = moment.data(), job.samples = samples_of(data);
            job.ends = ends, job.rates = rates, job.steps = 2, job.momentum = 0.9f, job.gradient_squares = squares;
            job.clip = kind == 2 ? 1e6f : 0.0f;
            std::vector<int64_t> rows(data.order);
            const Contrast contrast{place, data.near.data(), data.far.data(), rows.data(), 2.0f, 0.5f};
            job.contrast = kind == 3 ? &contrast : nullptr;
            std::vector<float> seen(kind == 3 ? 2 * t.batch * width : 0);
            const Tap watch{place, seen.data()};
            job.watch = kind == 3 ? &watch : nullptr;
            const Done done = Rounds(t.program, kernels).run(job);
            const int so_far = faults;
            if (!(std::abs(done.loss / (2 * t.batch) - e.loss) < 1e-5 * std::max(1.0, e.loss))) ++faults;
            if (squares && !(std::abs(done.gradient_squares - 2 * square) < 1e-4 * square)) ++faults;
            for (int64_t i = 0; i < size; ++i) {
                if (!(std::abs(moment[i] - 1.9 * wanted[i]) < 3e-5)) ++faults;
                if (!(std::abs(before[i] - 1.9 * wanted[i] - weights[i]) < 3e-5)) ++faults;
            }
            for (size_t i = 0; i < seen.size(); ++i) {
                const int b = int(i) / width % t.batch;
                const Numbers z = outputs(t.program, before, data.sample(t.program, b), place);
                if (!(std::abs(seen[i] - z[i % width]) < 1e-4)) ++faults;
            }
            if (faults > so_far) std::printf("%s, %s, batch %d, kind %d\n", name.c_str(), t.name, t.batch, kind);
        }
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

// Convolutions of every stride, without and with taps beside the image, and of enough channels to leave these out.
Program strides(Objective objective) {
    Program p(2, 7, 9, 576, objective);
    p.product(0, 144, 8, {3, 3, 1, 2, 1, 1});  // 8 × 7 × 5
    p.relu();
    p.product(160, 320, 5, {2, 2, 1, 1, 0, 0});  // 5 × 6 × 4
    p.relu();
    p.product(336, -1, 4, {1, 3, 2, 3, 0, 1});  // 4 × 3 × 2
    p.relu();
    p.linear(400, 520, 5);
    return p;
}

// More rows and channels than a tile has, on images of four pixels, which are all border.
Program corners(Objective objective) {
    Program p(5, 2, 2, 1936, objective);
    p.product(0, 585, 13, {3, 3, 1, 1, 1, 1});
    p.relu();
    p.product(608, 1778, 10, {3, 3, 1, 1, 1, 1});
    p.relu();
    p.linear(1792, 1912, 3);
    return p;
}

// A map that three layers read, two convolutions of other borders and a sum, and norms with and without scales.
Program residuals(Objective objective) {
    Program p(2, 4, 6, 480, objective);
    p.product(0, 72, 4, {3, 3, 1, 1, 1, 1});
    p.norm(80, 88, 2, 1e-3f);
    p.relu();                                   // the third place
    p.product(96, -1, 4, {3, 3, 1, 1, 1, 1});
    p.norm(-1, -1, 4, 1e-2f);
    p.sum(3);                                   // the sixth
    p.from(3);
    p.product(240, 256, 4, {1, 1, 1, 1, 0, 0});
    p.sum(6);
    p.pool(Kind::average_pool, {4, 3, 4, 3, 0, 0}, true);
    p.linear(264, 304, 4);
    p.relu();
    p.linear(312, 328, 3);
    return p;
}

// Blocks of a deep network: a norm, a sum with what came in and a ReLU; in the second with a norm of every other pixel.
Program blocks(Objective objective) {
    Program p(2, 4, 6, 512, objective);
    p.product(0, -1, 4, {3, 3, 1, 1, 1, 1});
    p.norm(72, 76, 2, 1e-3f);
    p.relu();  // the third place
    p.product(80, -1, 4, {3, 3, 1, 1, 1, 1});
    p.norm(224, 228, 4, 1e-3f);
    p.sum(3);
    p.relu();  // the seventh
    p.product(232, -1, 6, {3, 3, 2, 2, 1, 1});
    p.norm(448, 454, 3, 1e-3f);  // the ninth
    p.from(7);
    p.product(460, -1, 6, {1, 1, 2, 2, 0, 0});
    p.norm(-1, -1, 2, 1e-2f);
    p.sum(9);
    p.relu();
    p.pool(Kind::average_pool, {2, 3, 2, 3, 0, 0}, true);
    p.linear(488, 506, 3);
    return p;
}

// A norm, which a sum and a later layer read.
Program twice(Objective objective) {
    Program p(2, 4, 4, 256, objective);
    p.product(0, -1, 4, {3, 3, 1, 1, 1, 1});
    p.relu();  // the second place
    p.product(72, -1, 4, {1, 1, 1, 1, 0, 0});
    p.norm(88, 92, 2, 1e-2f);  // the fourth
    p.sum(2);
    p.relu();
    p.sum(4);
    p.relu();
    p.linear(96, -1, 2);
    return p;
}

// Layers that are computed together give the bits that they give one by one, which looking between them makes them do.
int faults_of_passes() {
    const Program program = blocks({Loss::cross_entropy, 0, 1});
    const int features = program.maps[0].features();
    int faults = 0;
    for (const int batch : {1, 16, 20, 33}) {
        std::vector<float> weights(program.size), first;
        Data data;
        data.inputs.resize(batch * features), data.labels.resize(batch), data.order.resize(batch);
        std::mt19937 random(5);
        std::normal_distribution<float> normal;
        for (float& x : data.inputs) x = normal(random);
        for (float& w : weights) w = 0.3f * normal(random);
        for (int b = 0; b < batch; ++b) data.labels[b] = b % 3, data.order[b] = b;
        for (const std::string& name : kernel_names()) {
            const int so_far = faults;
            Rounds rounds(program, kernels_for(name));
            if (name == "plain") first.clear();  // may round twice
            for (int place = -1; place <= int(program.layers.size()); ++place) {
                std::vector<float> gradient(program.size, 0.0f);
                const int width = place < 0 ? 0 : width_at(program, place);
                std::vector<float> seen(batch * width), more(batch * width, 0.0f);
                std::vector<Tap> ahead, back;
                if (place >= 0) ahead.push_back({place, seen.data()});
                if (place > 0) back.push_back({place, more.data()});
                rounds.ahead(weights.data(), samples_of(data), batch, 0, 0, ahead);
                rounds.back(weights.data(), back, gradient.data());
                if (first.empty()) first = gradient;
                for (size_t i = 0; i < first.size(); ++i) faults += !(gradient[i] == first[i]);
            }
            if (faults > so_far) std::printf("%s, layers together, batch %d\n", name.c_str(), batch);
        }
    }
    return faults;
}

// Two layers of an LSTM, one without biases, of more units than a tile has rows.
Program sequences(Objective objective) {
    Program p(3, 1, 1, 1152, objective);
    p.embedding(0, 4, 2);
    p.product(16, 128, 52, {1, 1, 1, 1, 0, 0});
    p.recurrence(192, 880);
    p.product(944, -1, 8, {1, 1, 1, 1, 0, 0});
    p.recurrence(1056, -1);
    p.last();
    p.linear(1088, 1104, 4);
    p.relu();
    p.linear(1120, 1136, 3);
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

// Norms over a batch: on a map with a border and one without, with and without scales, one that is frozen, and of rows.
Program batches(Objective objective) {
    Program p(2, 5, 6, 512, objective);
    p.product(0, 72, 4, {3, 3, 1, 1, 1, 1});  // 4 × 5 × 6, in a halo of 1 for the next
    p.batch_norm(80, 96, 1e-3f, 0.1, true);
    p.relu();
    p.product(112, -1, 5, {3, 3, 2, 2, 1, 1});  // 5 × 3 × 3
    p.batch_norm(-1, -1, 1e-2f, 0.3, true);
    p.batch_norm(304, 320, 1e-5f, 0.5, false);
    p.relu();
    p.linear(336, 464, 2);
    p.batch_norm(472, 480, 1e-1f, 0.2, true);
    p.relu();
    p.linear(488, 496, 3);
    return p;
}

// What some layers make of a batch; in training, by its own moments, towards which the running ones move.
std::vector<Numbers> outputs_of_batch(const Program& p, const Numbers& w, std::vector<Numbers> x, Numbers& running,
                                      bool training, size_t end) {
    for (size_t l = 0; l < end; ++l) {
        const Layer& layer = p.layers[l];
        const int channels = p.maps[layer.in].channels, pixels = p.maps[layer.in].features() / channels;
        if (layer.kind != Kind::batch_norm) {
            for (Numbers& one : x) one = outputs(p, w, one, l + 1, l);
            continue;
        }
        for (int c = 0; c < channels; ++c) {
            double &old_mean = running[layer.statistics + c], &old_variance = running[layer.statistics + channels + c];
            double mean = old_mean, variance = old_variance;
            if (training && layer.live) {
                const double n = double(x.size()) * pixels;
                mean = variance = 0;
                for (const Numbers& one : x)
                    for (int i = c * pixels; i < (c + 1) * pixels; ++i) mean += one[i] / n;
                for (const Numbers& one : x)
                    for (int i = c * pixels; i < (c + 1) * pixels; ++i) variance += (one[i] - mean) * (one[i] - mean) / n;
                old_mean += layer.momentum * (mean - old_mean);
                old_variance += layer.momentum * (variance * n / (n - 1) - old_variance);
            }
            for (Numbers& one : x)
                for (int i = c * pixels; i < (c + 1) * pixels; ++i) {
                    one[i] = (one[i] - mean) / std::sqrt(variance + layer.epsilon);
                    if (layer.weights >= 0) one[i] = one[i] * w[layer.weights + c] + w[layer.bias + c];
                }
        }
    }
    return x;
}

int faults_of_batch_norms(int batch) {
    const Trial t{"batch norms", batches({Loss::cross_entropy, 0, 1}), batch, false};
    const Program& p = t.program;
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    Data data;
    data.inputs.resize(batch * p.maps[0].features()), data.labels.resize(batch), data.order.resize(2 * batch);
    for (float& x : data.inputs) x = 1 + normal(random);
    for (int b = 0; b < batch; ++b) data.labels[b] = random() % 3, data.order[b] = data.order[batch + b] = b;
    std::vector<float> first(p.size), statistics(p.statistics);
    for (float& w : first) w = 0.3f * normal(random);
    first[480] = first[481] = 2;  // or the last ReLU would let nothing through by running statistics
    for (float& s : statistics) s = 0.5f + 0.1f * std::abs(normal(random));
    const Numbers at(first.begin(), first.end()), begun(statistics.begin(), statistics.end());
    std::vector<Numbers> samples;
    for (int b = 0; b < batch; ++b) samples.push_back(data.sample(p, b));

    // The loss of each sample.
    const auto lost = [&](const Numbers& w, bool training, Numbers& running) {
        const std::vector<Numbers> y = outputs_of_batch(p, w, samples, running, training, p.layers.size());
        Numbers found;
        for (int b = 0; b < batch; ++b) found.push_back(losses(t, data, y[b], b).second);
        return found;
    };
    // What lies between the first norm and its ReLU, and a term of it, by some factors.
    constexpr int between = 2;
    const int width = width_at(p, between);
    std::vector<float> z(batch * width), more(batch * width);
    for (float& m : more) m = 0.05f * normal(random);
    const auto term = [&](const Numbers& w, Numbers& running) {
        const std::vector<Numbers> found = outputs_of_batch(p, w, samples, running, true, between);
        double sum = 0;
        for (int i = 0; i < batch * width; ++i) sum += more[i] * found[i / width][i % width];
        return sum;
    };
    Numbers once = begun, slope(p.size), tilted(p.size), unused;
    double loss = 0, single = 0;
    for (double one : lost(at, true, once)) loss += one / batch;
    Numbers twice = once;
    lost(at, true, twice);
    for (size_t i = 0; i < at.size(); ++i) {
        Numbers up = at, down = at;
        up[i] += 1e-6, down[i] -= 1e-6;
        const auto apart = [&](bool training) {
            Numbers above = lost(up, training, unused = begun), below = lost(down, training, unused = begun);
            for (int b = 0; b < batch; ++b) above[b] = (above[b] - below[b]) / 2e-6;
            return above;
        };
        for (double own : apart(true)) slope[i] += own / batch;
        tilted[i] = slope[i] + (term(up, unused = begun) - term(down, unused = begun)) / 2e-6;
        for (double own : apart(false)) single += own * own;
    }

    int faults = 0;
    const auto compare = [&](const std::vector<float>& found, const Numbers& wanted, double times, double close) {
        for (size_t i = 0; i < wanted.size(); ++i)
            if (!(std::abs(found[i] - times * wanted[i]) < close)) ++faults;
    };
    for (const std::string& name : kernel_names()) {
        const Kernels& kernels = kernels_for(name);
        const int so_far = faults;
        std::vector<float> weights(first), moment(p.size), gradient(p.size), running(statistics);
        const int64_t ends[] = {batch, 2 * batch};
        const float rates[] = {0.0f, 1.0f};
        Job job{};
        job.weights = weights.data(), job.moment = moment.data(), job.samples = samples_of(data);
        job.ends = ends, job.rates = rates, job.steps = 2, job.momentum = 0.9f, job.statistics = running.data();
        const Done done = Rounds(p, kernels).run(job);
        compare(moment, slope, 1.9, 5e-5), compare(running, twice, 1, 1e-5);
        if (!(std::abs(done.loss / (2 * batch) - loss) < 1e-5)) ++faults;

        running = statistics;
        Rounds halves(p, kernels);
        halves.ahead(first.data(), samples_of(data), batch, 0, 0, {}, running.data());
        halves.back(first.data(), {}, gradient.data());
        compare(gradient, slope, 1, 3e-5), compare(running, once, 1, 1e-5);
        running = statistics;
        halves.ahead(first.data(), samples_of(data), batch, 0, 0, {{between, z.data()}}, running.data());
        halves.back(first.data(), {{between, more.data()}}, gradient.data());
        compare(gradient, tilted, 1, 1e-4);
        const auto wanted = outputs_of_batch(p, at, samples, unused = begun, true, between);
        for (int b = 0; b < batch; ++b) compare({&z[b * width], &z[b * width] + width}, wanted[b], 1, 1e-4);

        running = statistics;
        const double trace = Rounds(p, kernels).trace(first.data(), samples_of(data), batch, running.data());
        if (!(std::abs(trace - single) < 1e-5 * trace)) ++faults;
        for (int place = 0; place <= int(p.layers.size()); ++place) {
            const int width = width_at(p, place);
            std::vector<float> found(size_t(batch) * width);
            Rounds(p, kernels).look(first.data(), samples_of(data), batch, {place, found.data()}, running.data());
            const auto wanted = outputs_of_batch(p, at, samples, unused = begun, false, place);
            for (int b = 0; b < batch; ++b)
                compare({&found[b * width], &found[b * width] + width}, wanted[b], 1, 1e-4);
        }
        compare(running, begun, 1, 1e-9);
        if (faults > so_far) std::printf("%s, %s, batch %d\n", name.c_str(), t.name, batch);
    }
    return faults;
}

// One number of a channel has no variance.
int faults_of_one_number() {
    Program p(3, 1, 1, 16, {Loss::cross_entropy, 0, 1});
    p.linear(0, -1, 2);
    p.batch_norm(-1, -1, 1e-5f, 0.1, true);
    std::vector<float> weights(16, 1.0f), inputs(3, 1.0f), statistics(4, 1.0f);
    const int64_t label = 0, order = 0;
    try {
        Rounds(p, kernels_for("plain"))
            .ahead(weights.data(), {inputs.data(), &label, nullptr, &order}, 1, 0, 0, {}, statistics.data());
    } catch (const std::invalid_argument&) {
        return 0;
    }
    std::printf("a norm of one number\n");
    return 1;
}

// The tree in words: split off the largest power of two below the count, sum both sides, add.
float summed(const std::vector<std::vector<float>>& vectors, const std::vector<float>& weights, int64_t k, int64_t i, int64_t n) {
    if (n == 1) return vectors[i][k] * weights[i];
    int64_t half = 1;
    while (2 * half < n) half *= 2;
    return summed(vectors, weights, k, i, half) + summed(vectors, weights, k, i + half, n - half);
}

int faults_of_sums() {
    int faults = 0;
    std::vector<float> room(SPAN * PARTIAL_SUMS);
    for (const int64_t count : {1, 3, 4, 6, 23})
        for (const int64_t size : {int64_t(1), SPAN - 1, SPAN, 2 * SPAN + 5}) {
            std::vector<std::vector<float>> vectors(count, std::vector<float>(size));
            std::vector<float> weights(count), out(size);
            std::vector<const float*> from;
            for (int64_t i = 0; i < count; ++i) {
                for (int64_t k = 0; k < size; ++k) vectors[i][k] = std::sin(float(i * size + k));
                weights[i] = std::cos(float(i));
                from.push_back(vectors[i].data());
            }
            for (const std::string& name : kernel_names()) {
                kernels_for(name).weighted_sum(out.data(), from.data(), weights.data(), count, size, room.data());
                const int so_far = faults;
                for (int64_t k = 0; k < size; ++k) faults += out[k] != summed(vectors, weights, k, 0, count);
                if (faults > so_far) std::printf("%s, a sum of %d vectors of %d\n", name.c_str(), int(count), int(size));
            }
        }
    return faults;
}

int faults_of_differences() {
    int faults = 0;
    for (const int64_t size : std::vector<int64_t>{1, 7, 8, 24, 1003, FAR, FAR + 29})
        for (const int64_t off : {0, 1}) {  // also where a vector does not begin on a boundary
            std::vector<float> a(size + off), b(size + off), out(size + off, 9.0f);
            for (int64_t i = 0; i < size + off; ++i) a[i] = std::sin(float(i)), b[i] = std::cos(3.0f * float(i));
            float sum[8] = {}, last = 0;
            for (int64_t i = off; i < size + off; ++i) {
                const float d = a[i] - b[i];
                if (i - off < size / 8 * 8)
                    sum[(i - off) % 8] += d * d;
            }
            last = sum[0];
            for (int lane = 1; lane < 8; ++lane) last += sum[lane];
            for (int64_t i = off + size / 8 * 8; i < size + off; ++i) last += (a[i] - b[i]) * (a[i] - b[i]);
            for (const std::string& name : kernel_names()) {
                const int so_far = faults;
                const float length = kernels_for(name).difference(out.data() + off, a.data() + off, b.data() + off, size);
                faults += length != std::sqrt(last);
                for (int64_t i = 0; i < off; ++i) faults += out[i] != 9.0f;
                for (int64_t i = off; i < size + off; ++i) faults += out[i] != a[i] - b[i];
                if (faults > so_far) std::printf("%s, a difference of %d from %d\n", name.c_str(), int(size), int(off));
            }
        }
    return faults;
}

}  // namespace

int main() {
    int faults = faults_of_sums() + faults_of_differences() + faults_of_passes() + faults_of_one_number();
    for (const int batch : {2, 3, 16, 26}) faults += faults_of_batch_norms(batch);
    const Objective classes{Loss::cross_entropy, 0, 1}, smoothed{Loss::cross_entropy, 0.2f, 1};
    const Objective tags{Loss::binary_cross_entropy, 0, 0.25f};
    for (const int batch : {3, 16, 26}) {
        faults += faults_of({"strides", strides(classes), batch, false});
        faults += faults_of({"corners", corners(classes), batch, false});
        faults += faults_of({"residuals", residuals(classes), batch, false});
        faults += faults_of({"blocks", blocks(classes), batch, false});
        faults += faults_of({"twice", twice(classes), batch, false});
        faults += faults_of({"sequences", sequences(classes), batch, false});
    }
    for (const int batch : {1, 16, 37}) {
        faults += faults_of({"images", images(smoothed), batch, false});
        faults += faults_of({"tags of images", images(tags), batch, true});
        faults += faults_of({"rows", rows(classes), batch, false});
    }
    return faults > 255 ? 255 : faults;
}
