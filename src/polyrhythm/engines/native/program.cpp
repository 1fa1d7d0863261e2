#include "program.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

Program::Program(int channels, int height, int width, long size, Objective objective)
    : maps{{channels, height, width}}, size(size), objective(objective) {}

void Program::product(long weights, long bias, int rows, Window window) {
    maps.back().above = window.above, maps.back().beside = window.beside;
    const Map in = maps.back();
    if (in.rows() < window.height || in.columns() < window.width)
        throw std::invalid_argument("a window that is larger than what it looks at");
    const long taps = long(in.channels) * window.height * window.width;
    if (weights < 0 || weights + rows * taps > size || bias + rows > size)
        throw std::invalid_argument("weights outside of the vector");
    layers.push_back({Kind::product, int(maps.size()) - 1, int(maps.size()), window, weights, bias});
    leads_to({rows, window.rows(in.height), window.columns(in.width)});
}

// A linear layer looks at the whole map through one window; its weights lie in the order in which flattening would
// have put the map's numbers.
void Program::linear(long weights, long bias, int rows) {
    const Map in = maps.back();
    product(weights, bias, rows, {in.height, in.width, 1, 1, 0, 0});
}

void Program::relu() { layers.push_back({Kind::relu, int(maps.size()) - 1, int(maps.size()) - 1}); }

void Program::dropout(float share) {
    layers.push_back({Kind::dropout, int(maps.size()) - 1, int(maps.size()) - 1});
    layers.back().dropped = share;
}

void Program::pool(Kind kind, Window window, bool whole_area) {
    const Map in = maps.back();
    layers.push_back({kind, int(maps.size()) - 1, int(maps.size()), window});
    layers.back().whole_area = whole_area;
    leads_to({in.channels, window.rows(in.height), window.columns(in.width)});
}

void Program::leads_to(Map map) {
    if (map.channels < 1 || map.height < 1 || map.width < 1) throw std::invalid_argument("a layer without outputs");
    maps.push_back(map);
}

namespace {

constexpr int ROWS = 6;  // rows of a linear layer whose gradient is taken, and may be stepped, together

int blocks_of(int count) { return (count + LANES - 1) / LANES; }

float* aligned(std::vector<float>& room, size_t floats) {
    room.assign(floats + 16, 0.0f);
    const auto at = reinterpret_cast<uintptr_t>(room.data());
    return reinterpret_cast<float*>((at + 63) & ~uintptr_t(63));
}

// splitmix64: a well-mixed number for each name.
uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

void tabulate(Product& p, std::vector<int>& tap, std::vector<int>& column, std::vector<int>& place, const Map& in,
              const Map& out, const Window& window, int blocks) {
    for (int c = 0; c < in.channels; ++c)
        for (int y = 0; y < window.height; ++y)
            for (int x = 0; x < window.width; ++x) tap.push_back(in.padded(c, y, x));
    for (int n = 0; n < blocks; ++n)
        for (int y = 0; y < out.height; ++y)
            for (int x = 0; x < out.width; ++x) {
                column.push_back(n * in.floats() + in.padded(0, y * window.down, x * window.across));
                place.push_back(n * out.floats() + out.inside(0, y, x));
            }
    p = {out.channels, int(tap.size()), out.height * out.width, tap.data(), column.data(), place.data(),
         out.rows() * out.columns() * LANES};
}

void tabulate(Pool& p, std::vector<int>& first, std::vector<int>& tap, std::vector<int>& place,
              std::vector<float>& share, const Map& in, const Map& out, const Layer& layer) {
    const Window& w = layer.window;
    for (int c = 0; c < out.channels; ++c)
        for (int top = 0; top < out.height; ++top)
            for (int left = 0; left < out.width; ++left) {
                first.push_back(int(tap.size()));
                for (int y = top * w.down - w.above; y < top * w.down - w.above + w.height; ++y)
                    for (int x = left * w.across - w.beside; x < left * w.across - w.beside + w.width; ++x)
                        if (y >= 0 && y < in.height && x >= 0 && x < in.width) tap.push_back(in.inside(c, y, x));
                place.push_back(out.inside(c, top, left));
                share.push_back(1.0f / float(layer.whole_area ? w.height * w.width : int(tap.size()) - first.back()));
            }
    first.push_back(int(tap.size()));
    p = {int(place.size()), first.data(), tap.data(), place.data(), share.data(), in.floats(), out.floats()};
}

}  // namespace

void Rounds::make_room(int batch) {
    const int blocks = blocks_of(batch);
    if (blocks <= blocks_) return;
    blocks_ = blocks;
    const auto& maps = program_.maps;
    for (const Map& map : maps)
        if (int64_t(map.floats()) * blocks > INT32_MAX) throw std::length_error("a batch this large has no room");

    place_.clear(), tables_.clear(), room_.clear(), values_.clear(), gradients_.clear();
    for (int c = 0; c < maps[0].channels; ++c)
        for (int y = 0; y < maps[0].height; ++y)
            for (int x = 0; x < maps[0].width; ++x) place_.push_back(maps[0].inside(c, y, x));
    blank_.assign(maps[0].features(), 0.0f);

    size_t rows = 0;
    tables_.resize(program_.layers.size());
    for (size_t i = 0; i < tables_.size(); ++i) {
        const Layer& layer = program_.layers[i];
        const Map &in = maps[layer.in], &out = maps[layer.out];
        Tables& t = tables_[i];
        if (layer.kind == Kind::product) {
            tabulate(t.product, t.tap, t.column, t.place, in, out, layer.window, blocks);
            t.pitch = (t.product.taps + LANES - 1) / LANES * LANES;
            if (t.product.columns == 1) rows = std::max(rows, size_t(t.pitch) * blocks * LANES);
        } else if (layer.kind == Kind::max_pool || layer.kind == Kind::average_pool) {
            tabulate(t.pool, t.first, t.tap, t.place, t.share, in, out, layer);
        }
    }

    room_.resize(2 * maps.size() + 2);
    for (size_t i = 0; i < maps.size(); ++i) {
        const size_t floats = size_t(maps[i].floats()) * blocks;
        values_.push_back(aligned(room_[2 * i], floats));
        gradients_.push_back(i ? aligned(room_[2 * i + 1], floats) : nullptr);  // nobody asks for that of the inputs
    }
    gradient_ = aligned(room_[2 * maps.size()], program_.size);
    rows_ = aligned(room_[2 * maps.size() + 1], rows);
}

Done Rounds::run(const Job& job) {
    if (busy_.test_and_set()) throw std::logic_error("two threads in one engine: each needs its own");
    struct Release {
        std::atomic_flag& flag;
        ~Release() { flag.clear(); }
    } release{busy_};

    int64_t largest = 0;
    for (long s = 0; s < job.steps; ++s) largest = std::max(largest, job.ends[s] - (s ? job.ends[s - 1] : 0));
    make_room(int(largest));

    const bool whole = job.clip > 0 || job.gradient_squares;  // whether the whole gradient is looked at before it is used
    Done done;
    for (long s = 0; s < job.steps; ++s) {
        const int64_t* order = job.order + (s ? job.ends[s - 1] : 0);
        const int count = int(job.order + job.ends[s] - order);
        const Update update{job.weights, job.start, job.shift,    job.moment,   job.pull,
                            job.decay,   job.momentum, job.rates[s], job.nesterov};
        read(job, order, count);
        forward(job, s, count);
        loss(job, order, count, done);
        backward(job, s, count, whole ? nullptr : &update);
        if (!whole) continue;

        double square = k_.square(gradient_, program_.size);
        if (job.clip > 0) {
            const float by = job.clip / (float(std::sqrt(square)) + 1e-6f);
            if (by < 1) {
                k_.scale(gradient_, program_.size, by);
                square = k_.square(gradient_, program_.size);
            }
        }
        done.gradient_squares += square;
        for (size_t i = 0; i < tables_.size(); ++i) {
            const Layer& layer = program_.layers[i];
            if (layer.kind != Kind::product) continue;
            const Product& p = tables_[i].product;
            k_.update(update, gradient_ + layer.weights, layer.weights, long(p.rows) * p.taps);
            if (layer.bias >= 0) k_.update(update, gradient_ + layer.bias, layer.bias, p.rows);
        }
    }
    return done;
}

// The batch's samples into the lanes of the first map.
void Rounds::read(const Job& job, const int64_t* order, int count) {
    const Map& map = program_.maps[0];
    const float* samples[LANES];
    for (int first = 0; first < count; first += LANES) {
        for (int lane = 0; lane < LANES; ++lane)
            samples[lane] = first + lane < count ? job.inputs + order[first + lane] * map.features() : blank_.data();
        k_.to_lanes(samples, map.features(), place_.data(), values_[0] + long(first / LANES) * map.floats());
    }
}

void Rounds::forward(const Job& job, long step, int count) {
    const int blocks = blocks_of(count);
    for (size_t i = 0; i < tables_.size(); ++i) {
        const Layer& layer = program_.layers[i];
        const Tables& t = tables_[i];
        float *in = values_[layer.in], *out = values_[layer.out];
        const long size = long(program_.maps[layer.in].floats()) * blocks;
        switch (layer.kind) {
            case Kind::product: {
                const float* bias = layer.bias < 0 ? nullptr : job.weights + layer.bias;
                k_.forward(t.product, job.weights + layer.weights, bias, in, out, blocks);
                break;
            }
            case Kind::relu: k_.relu(in, size); break;
            case Kind::dropout: k_.drop(drop(layer, int(i), job, step), in, size); break;
            case Kind::max_pool: k_.max_pool(t.pool, in, out, blocks); break;
            case Kind::average_pool: k_.average_pool(t.pool, in, out, blocks); break;
        }
    }
}

// Turns the outputs into their gradient, and adds up the losses.
void Rounds::loss(const Job& job, const int64_t* order, int count, Done& done) {
    const Map& map = program_.maps.back();
    const Objective& o = program_.objective;
    float* outputs = gradients_.back();
    std::copy_n(values_.back(), long(map.floats()) * blocks_of(count), outputs);
    double losses[LANES];
    for (int first = 0; first < count; first += LANES, outputs += map.floats()) {
        const int here = std::min(LANES, count - first);
        if (o.loss == Loss::cross_entropy) {
            int64_t labels[LANES];
            for (int b = 0; b < here; ++b) labels[b] = job.labels[order[first + b]];
            k_.cross_entropy(outputs, map.channels, labels, here, o.smoothing, 1.0f / float(count), losses);
        } else {
            const float* targets[LANES];
            for (int b = 0; b < here; ++b) targets[b] = job.targets + order[first + b] * map.channels;
            k_.binary_cross_entropy(outputs, map.channels, targets, here, o.weight, 1.0f / float(count), losses);
        }
        for (int b = 0; b < here; ++b) done.loss += losses[b], done.squared_loss += losses[b] * losses[b];
    }
}

// From the outputs' gradient to that of every weight; with `fuse`, each is stepped as soon as it is known and needed
// no more. Nothing below the first product learns.
void Rounds::backward(const Job& job, long step, int count, const Update* fuse) {
    const int blocks = blocks_of(count);
    size_t lowest = 0;
    while (program_.layers[lowest].kind != Kind::product) ++lowest;
    for (size_t i = tables_.size(); i-- > lowest;) {
        const Layer& layer = program_.layers[i];
        const Tables& t = tables_[i];
        const float *in = values_[layer.in], *dout = gradients_[layer.out];
        float* din = gradients_[layer.in];
        const long size = long(program_.maps[layer.in].floats()) * blocks;
        if (layer.in != layer.out && i > lowest) std::fill_n(din, size, 0.0f);
        switch (layer.kind) {
            case Kind::product:
                if (i > lowest) k_.input_gradient(t.product, job.weights + layer.weights, dout, din, blocks);
                product_gradient(layer, int(i), job, count, fuse);
                break;
            case Kind::relu: k_.relu_gradient(in, din, size); break;
            case Kind::dropout: k_.drop(drop(layer, int(i), job, step), din, size); break;
            case Kind::max_pool: k_.max_pool_gradient(t.pool, in, dout, din, blocks); break;
            case Kind::average_pool: k_.average_pool_gradient(t.pool, dout, din, blocks); break;
        }
    }
}

void Rounds::product_gradient(const Layer& layer, int index, const Job& job, int count, const Update* fuse) {
    const Tables& t = tables_[index];
    const Product& p = t.product;
    const float *in = values_[layer.in], *dout = gradients_[layer.out];
    const int blocks = blocks_of(count);
    if (p.columns == 1) {
        const Map& map = program_.maps[layer.in];
        for (int n = 0; n < blocks; ++n)
            k_.to_rows(in + long(n) * map.floats(), p.tap, p.taps, rows_ + long(n) * LANES * t.pitch, t.pitch);
        for (int row = 0; row < p.rows; row += ROWS) {
            const int here = std::min(ROWS, p.rows - row);
            const long offset = layer.weights + long(row) * p.taps;
            // The same few rows of memory each time, if their gradient is used at once.
            float* gradient = fuse ? gradient_ : gradient_ + offset;
            k_.row_gradient(p, rows_, t.pitch, dout, count, row, here, gradient);
            if (fuse) k_.update(*fuse, gradient, offset, long(here) * p.taps);
        }
    } else {
        k_.weight_gradient(p, in, dout, gradient_ + layer.weights, blocks);
        if (fuse) k_.update(*fuse, gradient_ + layer.weights, layer.weights, long(p.rows) * p.taps);
    }
    if (layer.bias < 0) return;
    k_.bias_gradient(p, dout, gradient_ + layer.bias, blocks);
    if (fuse) k_.update(*fuse, gradient_ + layer.bias, layer.bias, p.rows);
}

// Which elements a layer drops in a step is named by the visit's seed, the step and the layer.
Drop Rounds::drop(const Layer& layer, int index, const Job& job, long step) const {
    const uint64_t key = mixed(mixed(job.seed ^ mixed(uint64_t(step))) ^ uint64_t(index));
    const double kept = 1.0 - double(layer.dropped);
    const double threshold = std::min(double(layer.dropped) * 4294967296.0, 4294967295.0);
    return {{uint32_t(key), uint32_t(key >> 32)}, uint32_t(threshold), kept > 0 ? float(1.0 / kept) : 0.0f};
}

namespace {

std::vector<const Kernels*> usable() {
    std::vector<const Kernels*> found;
#ifdef POLYRHYTHM_X86
    __builtin_cpu_init();
    const bool narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    if (narrow && wide) found.push_back(&kernels_avx512);
    if (narrow) found.push_back(&kernels_avx2);
#endif
    found.push_back(&kernels_plain);
    return found;
}

}  // namespace

const Kernels& kernels_for(const std::string& name) {
    for (const Kernels* kernels : usable())
        if (name.empty() || name == kernels->name) return *kernels;
    throw std::invalid_argument("no kernels for " + name + " here");
}

std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
    for (const Kernels* kernels : usable()) names.push_back(kernels->name);
    return names;
}
