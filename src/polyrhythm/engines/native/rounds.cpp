#include "rounds.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#if defined(POLYRHYTHM_X86) && defined(_WIN32)
#include <intrin.h>
#endif

namespace {

constexpr int ROWS = 6;  // rows of a linear layer whose gradient is taken, and may be stepped, together

constexpr size_t PLANS = 4;  // sizes of batches whose plans are kept

constexpr int AT_ONCE = 128;          // samples of a pass over many: few enough to stay near the processor
constexpr int64_t ROOM = int64_t(1) << 25;  // and numbers between the layers in all, but for sixteen samples at least

const float* at(const float* weights, int64_t offset) { return offset < 0 ? nullptr : weights + offset; }

int blocks_of(int count) { return (count + LANES - 1) / LANES; }
int whole_blocks(int count) { return blocks_of(count) * LANES; }

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
                column.push_back(n * in.floats() +
                                 in.inside(0, y * window.down - window.above, x * window.across - window.beside));
                place.push_back(n * out.floats() + out.inside(0, y, x));
            }
    p = {out.channels, int(tap.size()), out.height * out.width, tap.data(), column.data(), place.data(),
         out.plane()};
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

// One step's update: Adam corrects its rates for the moments that began at zero.
Update update_of(const Job& job, int64_t step) {
    Update u{job.weights, job.start, job.shift, job.moment, job.second, job.pull, job.decay, job.momentum,
             job.rates[step], job.nesterov};
    if (job.second) {
        const double taken = double(job.taken + step + 1);
        u.beta2 = float(job.beta2), u.rest2 = float(1 - job.beta2), u.epsilon = float(job.epsilon);
        u.rate = float(job.rates[step] / (1 - std::pow(double(job.momentum), taken)));
        u.root = float(std::sqrt(1 - std::pow(job.beta2, taken)));
        if (job.decoupled) u.decay = 0, u.keep = float(1 - double(job.rates[step]) * double(job.decay));
    }
    return u;
}

// Refuses a second thread.
struct Alone {
    std::atomic_flag& flag;
    explicit Alone(std::atomic_flag& flag) : flag(flag) {
        if (flag.test_and_set()) throw std::logic_error("two threads in one engine: each needs its own");
    }
    ~Alone() { flag.clear(); }
};

}  // namespace

// Samples of a pass over many.
int Rounds::at_once() const {
    int64_t each = 0;
    for (const Map& map : program_.maps) each += map.floats() / LANES;
    return int(std::clamp<int64_t>(ROOM / each / LANES * LANES, LANES, AT_ONCE));
}

void Rounds::make_room(int batch) {
    const int blocks = blocks_of(batch);
    if (blocks <= blocks_) return;
    blocks_ = blocks;
    const auto& maps = program_.maps;
    for (const Map& map : maps)
        if (int64_t(map.floats()) * blocks > INT32_MAX) throw std::length_error("a batch this large has no room");

    place_.clear(), packed_.clear(), tables_.clear(), plans_.clear(), room_.clear(), values_.clear(), gradients_.clear();
    int most = 0;
    for (const Map& map : maps) {
        place_.emplace_back();
        for (int c = 0; !map.sequence && c < map.channels; ++c)
            for (int y = 0; y < map.height; ++y)
                for (int x = 0; x < map.width; ++x) place_.back().push_back(map.inside(c, y, x));
        most = std::max(most, map.features());
    }
    for (int f = 0; f < most; ++f) packed_.push_back(f * LANES);
    spare_.assign(size_t(2) * whole_blocks(most) * LANES, 0.0f);
    blank_.assign(most, 0.0f);

    size_t rows = 0;
    still_weights_.resize(program_.layers.size()), still_bias_.resize(program_.layers.size());
    tables_.resize(program_.layers.size());
    for (size_t i = 0; i < tables_.size(); ++i) {
        const Layer& layer = program_.layers[i];
        const Map &in = maps[layer.in], &out = maps[layer.out];
        Tables& t = tables_[i];
        if (layer.kind == Kind::recurrence || (layer.kind == Kind::product && in.sequence)) {
            tabulate_sequence(layer, t, blocks);
        } else if (layer.kind == Kind::product) {
            tabulate(t.product, t.tap, t.column, t.place, in, out, layer.window, blocks);
            t.pitch = whole_blocks(t.product.taps);
            if (t.product.columns == 1) rows = std::max(rows, size_t(t.pitch) * blocks * LANES);
        } else if (layer.kind == Kind::max_pool || layer.kind == Kind::average_pool) {
            tabulate(t.pool, t.first, t.tap, t.place, t.share, in, out, layer);
        } else if (layer.kind == Kind::norm) {
            t.product.rows = in.channels, t.product.taps = 1;
            t.moments = aligned(t.room_moments, size_t(2) * layer.groups * LANES * blocks);
            t.scales = aligned(t.room_scales, size_t(2) * in.channels * LANES * blocks);
        } else if (layer.kind == Kind::batch_norm) {
            t.product.rows = in.channels, t.product.taps = 1;
            t.channels.resize(in.channels);
        } else if (layer.kind == Kind::embedding) {
            t.product.rows = layer.tokens, t.product.taps = out.channels;
        }
    }

    size_t largest = 0;
    for (const Map& map : maps) largest = std::max(largest, size_t(map.floats()) * blocks);
    const auto& all = program_.layers;
    const bool several = std::any_of(all.begin(), all.end(), [](const Layer& layer) { return layer.more; });
    beside_ = aligned(room_beside_, several ? largest : 0);
    room_.resize(2 * maps.size() + 2);
    for (size_t i = 0; i < maps.size(); ++i) {
        const size_t floats = size_t(maps[i].floats()) * blocks;
        values_.push_back(aligned(room_[2 * i], floats));
        gradients_.push_back(i ? aligned(room_[2 * i + 1], floats) : nullptr);  // nobody asks for that of the inputs
    }
    gradient_ = aligned(room_[2 * maps.size()], program_.size);
    rows_ = aligned(room_[2 * maps.size() + 1], rows);
}

// How the convolutions are computed for a batch of that size: first of all plans.
void Rounds::lay_out(int count) {
    const auto known = std::find_if(plans_.begin(), plans_.end(), [&](const auto& p) { return p.first == count; });
    if (known != plans_.end()) {
        std::rotate(plans_.begin(), known, known + 1);
        return;
    }
    if (plans_.size() == PLANS) plans_.pop_back();
    plans_.emplace(plans_.begin(), count, std::vector<std::unique_ptr<Plan>>(tables_.size()));
    for (size_t i = 0; i < tables_.size(); ++i) {
        const Layer& layer = program_.layers[i];
        const Product& p = tables_[i].product;
        if (layer.kind != Kind::product || p.columns == 1 || program_.maps[layer.in].sequence) continue;
        auto& plan = plans_[0].second[i];
        plan = std::make_unique<Plan>(program_.maps[layer.in], program_.maps[layer.out], layer.window, p, count);
        if (plan->square) {
            const Squares& q = plan->squares;
            Tables& t = tables_[i];
            if (!t.u) t.u = aligned(t.room_u, size_t(16) * (size_t(q.rows) * q.channels + LANES));
            const size_t most = size_t(16) * (size_t(std::max(q.rows, q.channels)) * q.line + LANES);
            v_ = aligned(room_v_, std::max(room_v_.size(), most)), m_ = aligned(room_m_, std::max(room_m_.size(), most));
            samples_ = aligned(room_samples_, std::max(room_samples_.size(), size_t(whole_blocks(q.channels) + LANES) * q.line));
        }
        if (!plan->packed) continue;
        packed_in_ = aligned(room_in_, std::max(room_in_.size(), size_t(plan->in_floats)));
        packed_out_ = aligned(room_out_, std::max(room_out_.size(), size_t(plan->out_floats)));
    }
}

// Which parameters no step touches; none of them has a gradient until this is called again.
void Rounds::hold(const int64_t* held, int64_t holds) {
    const auto among = [&](int64_t offset) { return std::find(held, held + holds, offset) != held + holds; };
    still_weights_.assign(program_.layers.size(), 0), still_bias_.assign(program_.layers.size(), 0);
    for (size_t i = 0; holds && i < program_.layers.size(); ++i) {
        const Layer& layer = program_.layers[i];
        if (!layer.learns()) continue;
        still_weights_[i] = among(layer.weights), still_bias_[i] = layer.bias < 0 || among(layer.bias);
    }
}

Done Rounds::run(const Job& job) {
    const Alone alone(busy_);
    int64_t largest = 0;
    for (int64_t s = 0; s < job.steps; ++s) largest = std::max(largest, job.ends[s] - (s ? job.ends[s - 1] : 0));
    make_room(int(largest));
    hold(job.held, job.holds);

    const bool whole = job.clip > 0;  // whether the whole gradient is looked at before it is used
    if (whole) std::fill_n(gradient_, program_.size, 0.0f);  // other jobs leave pieces where no layer writes
    Done done;
    for (int64_t s = 0; s < job.steps; ++s) {
        const int64_t begin = s ? job.ends[s - 1] : 0;
        const int count = int(job.ends[s] - begin);
        Samples samples = job.samples;
        samples.order += begin;
        const Pass pass{job.weights, job.first + s, job.seed, false, job.statistics};
        const Update update = update_of(job, s);
        Use use{whole ? nullptr : &update, job.gradient_squares && !whole};

        read(samples, count);
        std::vector<Tap> watched;
        if (job.watch) {
            const int features = program_.maps[program_.map_at(job.watch->place)].features();
            watched.push_back({job.watch->place, job.watch->rows + begin * features});
        }
        if (job.still) {
            forward({job.weights, 0, 0, true, job.statistics}, count, watched, watched[0].place);
            watched.clear();
        }
        forward(pass, count, watched, tables_.size(), job.contrast ? job.contrast->place : -1);
        loss(samples, count, 1.0f / float(count), program_.objective.smoothing, done);
        if (job.contrast) {
            Contrast contrast = *job.contrast;
            contrast.row += begin;
            backward(pass, count, {}, &contrast, use);
        } else {
            backward(pass, count, {}, nullptr, use);
        }
        done.gradient_squares += use.sum;
        if (!whole) continue;

        double square = k_.square(gradient_, program_.size);
        const float by = job.clip / (float(std::sqrt(square)) + 1e-6f);
        if (by < 1) {
            k_.scale(gradient_, program_.size, by);
            square = k_.square(gradient_, program_.size);
        }
        done.gradient_squares += square;
        step_all(update);
    }
    hold(nullptr, 0);
    return done;
}

void Rounds::look(const float* weights, const Samples& samples, int64_t count, Tap tap, float* statistics) {
    const Alone alone(busy_);
    const int at_once = this->at_once();
    make_room(int(std::min<int64_t>(count, at_once)));
    const int features = program_.maps[program_.map_at(tap.place)].features();
    for (int64_t first = 0; first < count; first += at_once) {
        const int here = int(std::min<int64_t>(at_once, count - first));
        read({samples.inputs, nullptr, nullptr, samples.order + first}, here);
        forward({weights, 0, 0, true, statistics}, here, {{tap.place, tap.rows + first * features}}, tap.place);
    }
}

double Rounds::trace(const float* weights, const Samples& samples, int64_t count, float* statistics) {
    const Alone alone(busy_);
    const int at_once = this->at_once();
    make_room(int(std::min<int64_t>(count, at_once)));
    Use use{nullptr, false, true};
    const Pass pass{weights, 0, 0, true, statistics};
    for (int64_t first = 0; first < count; first += at_once) {
        const int here = int(std::min<int64_t>(at_once, count - first));
        Samples some = samples;
        some.order += first;
        Done unused;
        read(some, here);
        forward(pass, here, {}, tables_.size());
        loss(some, here, 1.0f, 0.0f, unused);
        backward(pass, here, {}, nullptr, use);
    }
    return use.sum;
}

Done Rounds::ahead(const float* weights, const Samples& samples, int count, int64_t step, uint64_t seed,
                   const std::vector<Tap>& taps, float* statistics) {
    const Alone alone(busy_);
    make_room(count);
    pass_ = {weights, step, seed, false, statistics};
    count_ = count;
    Done done;
    read(samples, count);
    forward(pass_, count, taps, tables_.size());
    loss(samples, count, 1.0f / float(count), program_.objective.smoothing, done);
    return done;
}

void Rounds::back(const float* weights, const std::vector<Tap>& more, float* gradient) {
    const Alone alone(busy_);
    if (!count_) throw std::logic_error("no batch is half way");
    pass_.weights = weights;
    lay_out(count_);
    Use use;
    std::swap(gradient, gradient_);
    backward(pass_, count_, more, nullptr, use);
    std::swap(gradient, gradient_);
    count_ = 0;
}

// The batch's samples into the lanes of the first map.
void Rounds::read(const Samples& samples, int count) {
    lay_out(count);
    const Map& map = program_.maps[0];
    const float* rows[LANES];
    for (int first = 0; first < count; first += LANES) {
        for (int lane = 0; lane < LANES; ++lane)
            rows[lane] =
                first + lane < count ? samples.inputs + samples.order[first + lane] * map.features() : blank_.data();
        k_.to_lanes(rows, map.features(), place_[0].data(), values_[0] + int64_t(first / LANES) * map.floats());
    }
}

// What a layer that learns makes of its inputs.
void Rounds::product(const Layer& layer, int index, const float* weights, int count) {
    if (program_.maps[layer.in].sequence) return along_sequence(layer, tables_[index], weights, count);
    const float *in = values_[layer.in], *bias = layer.bias < 0 ? nullptr : weights + layer.bias;
    float* out = values_[layer.out];
    weights += layer.weights;
    Plan* plan = plans_[0].second[index].get();
    if (!plan) return k_.forward(tables_[index].product, weights, bias, in, out, blocks_of(count));
    if (plan->square) {
        const Squares squares = squares_of(*plan);
        k_.squares_weights(squares, weights, tables_[index].u);
        return k_.squares_forward(squares, tables_[index].u, bias, in, out);
    }
    if (plan->packed) {
        k_.pack(plan->inputs, in, plan->in);
        in = plan->in, out = packed_out_;
    }
    if (plan->sparse)
        k_.sparse_forward(plan->product, plan->taps, weights, bias, in, out);
    else
        k_.forward(plan->product, weights, bias, in, out, 1);
    if (plan->packed) k_.unpack(plan->outputs, out, values_[layer.out]);
}

// How a convolution is cut into squares, with room for some of them.
Squares Rounds::squares_of(const Plan& plan) const {
    Squares squares = plan.squares;
    squares.v = v_, squares.m = m_, squares.samples = samples_;
    return squares;
}

// The gradient of its inputs, from that of its outputs, which is kept packed for that of its weights.
void Rounds::input_gradient(const Layer& layer, int index, const float* weights, int count, bool more) {
    if (program_.maps[layer.in].sequence) return back_along_sequence(layer, tables_[index], weights, count);
    const float* dout = gradients_[layer.out];
    float* din = gradients_[layer.in];
    weights += layer.weights;
    Plan* plan = plans_[0].second[index].get();
    if (!plan) return k_.input_gradient(tables_[index].product, weights, dout, din, blocks_of(count));
    if (plan->square) {
        Squares squares = squares_of(*plan);
        squares.more = more;
        return k_.squares_input_gradient(squares, tables_[index].u, dout, din);
    }
    if (plan->packed) {
        dout = plan->dout, din = packed_in_;
        std::fill_n(din, plan->in_floats, 0.0f);
    }
    if (plan->sparse)
        k_.sparse_input_gradient(plan->product, plan->taps, weights, dout, din);
    else if (plan->packed)
        k_.packed_input_gradient(plan->product, program_.maps[layer.in].channels, weights, dout, din);
    else
        k_.input_gradient(plan->product, weights, dout, din, 1);
    if (plan->packed) k_.unpack(plan->inputs, din, gradients_[layer.in]);
}

// The gradient of a convolution's weights.
void Rounds::weight_gradient(const Layer& layer, int index, float* gradient) {
    const Plan& plan = *plans_[0].second[index];
    if (plan.square)  // whose sums of weights are needed no more
        return k_.squares_weight_gradient(
            squares_of(plan), values_[layer.in], gradients_[layer.out], tables_[index].u, gradient);
    const float* in = plan.packed ? plan.in : values_[layer.in];
    const float* dout = plan.packed ? plan.dout : gradients_[layer.out];
    if (plan.sparse)
        k_.sparse_weight_gradient(plan.product, plan.taps, in, dout, gradient);
    else
        k_.weight_gradient(plan.product, in, dout, gradient, 1);
}

// Through the first `layers` layers; on the way, taps are filled, and what a contrast is about is kept.
void Rounds::forward(const Pass& pass, int count, const std::vector<Tap>& taps, size_t layers, int kept) {
    const int blocks = blocks_of(count);
    for (size_t i = 0;; ++i) {
        for (const Tap& tap : taps)
            if (tap.place == int(i)) take(program_.map_at(tap.place), count, tap.rows);
        if (kept == int(i)) {
            const float* values = values_[program_.map_at(kept)];
            kept_.assign(values, values + int64_t(program_.maps[program_.map_at(kept)].floats()) * blocks);
        }
        if (i == layers) return;

        const Layer& layer = program_.layers[i];
        const Tables& t = tables_[i];
        float *in = values_[layer.in], *out = values_[layer.out];
        const int64_t size = int64_t(program_.maps[layer.in].floats()) * blocks;
        switch (layer.kind) {
            case Kind::product: product(layer, int(i), pass.weights, count); break;
            case Kind::relu: k_.relu(in, size); break;
            case Kind::dropout:
                if (!pass.still) k_.drop(drop(layer, int(i), pass), in, size);
                break;
            case Kind::max_pool: k_.max_pool(t.pool, in, out, blocks); break;
            case Kind::average_pool: k_.average_pool(t.pool, in, out, blocks); break;
            case Kind::embedding: embed(layer, pass.weights, count); break;
            case Kind::recurrence: recur(layer, t, pass.weights, count); break;
            case Kind::last: last(layer, count); break;
            case Kind::from: break;
            case Kind::sum:
                add_map(layer.in, values_, layer.out, false, blocks);
                add_map(layer.other, values_, layer.out, true, blocks);
                break;
            case Kind::norm:
            case Kind::batch_norm: {
                const size_t with = with_norm(i, layers, taps, kept);
                if (layer.kind == Kind::norm)
                    norm(i, with, pass.weights, blocks);
                else
                    batch_norm(layer, int(i), pass, count, with > 0);
                i += with;
                break;
            }
        }
    }
}

// Turns the outputs into their gradient, times `share`, and adds up the losses.
void Rounds::loss(const Samples& samples, int count, float share, float smoothing, Done& done) {
    const Map& map = program_.maps.back();
    const Objective& o = program_.objective;
    float* outputs = gradients_.back();
    std::copy_n(values_.back(), int64_t(map.floats()) * blocks_of(count), outputs);
    double losses[LANES];
    for (int first = 0; first < count; first += LANES, outputs += map.floats()) {
        const int here = std::min(LANES, count - first);
        const int64_t* order = samples.order + first;
        if (o.loss == Loss::cross_entropy) {
            int64_t labels[LANES];
            for (int b = 0; b < here; ++b) labels[b] = samples.labels[order[b]];
            k_.cross_entropy(outputs, map.channels, labels, here, smoothing, share, losses);
        } else {
            const float* targets[LANES];
            for (int b = 0; b < here; ++b) targets[b] = samples.targets + order[b] * map.channels;
            k_.binary_cross_entropy(outputs, map.channels, targets, here, o.weight, share, losses);
        }
        for (int b = 0; b < here; ++b) done.loss += losses[b], done.squared_loss += losses[b] * losses[b];
    }
}

// From the outputs' gradient to that of every weight. Nothing below the first product that learns does.
void Rounds::backward(
    const Pass& pass, int count, const std::vector<Tap>& more, const Contrast* contrast, Use& use) {
    const int blocks = blocks_of(count);
    size_t lowest = 0;
    const auto learns = [&](size_t i) {
        return program_.layers[i].learns() && !(still_weights_[i] && still_bias_[i]);
    };
    while (lowest < tables_.size() && !learns(lowest)) ++lowest;
    const auto add_more = [&](size_t place) {
        for (const Tap& tap : more)
            if (tap.place == int(place)) give(program_.map_at(tap.place), count, tap.rows);
        if (contrast && contrast->place == int(place)) this->contrast(*contrast, count);
    };
    add_more(tables_.size());
    for (size_t i = tables_.size(); i-- > lowest;) {
        const size_t with = with_norm_before(i, more, contrast ? contrast->place : -1);
        i -= with;
        const Layer& layer = program_.layers[i];
        const Tables& t = tables_[i];
        const int64_t size = int64_t(program_.maps[layer.in].floats()) * blocks;
        Plan* plan = plans_[0].second[i].get();
        // Where a later layer reads the same map, its gradient is there already, and this one's is added to it.
        const bool several = layer.more && i > lowest && gradients_[layer.in] && layer.kind != Kind::sum;
        const bool adds = several && !(plan && plan->square);  // which add by themselves
        float* there = gradients_[layer.in];
        if (adds) gradients_[layer.in] = beside_;
        const float *in = values_[layer.in], *dout = gradients_[layer.out];
        float* din = i > lowest || layer.in_place() ? gradients_[layer.in] : nullptr;
        const bool rows = program_.maps[layer.in].sequence && layer.kind != Kind::last;
        const bool normed = layer.kind == Kind::norm || layer.kind == Kind::batch_norm;
        const bool sets = layer.in_place() || rows || normed || layer.kind == Kind::sum ||
                          (plan && (plan->square || plan->whole_inputs));  // all inside borders
        if (!sets && din) std::fill_n(din, size, 0.0f);
        switch (layer.kind) {
            case Kind::product:
                if (plan && plan->packed) k_.pack(plan->outputs, dout, plan->dout);
                if (din) input_gradient(layer, int(i), pass.weights, count, several);
                if (!learns(i)) break;
                if (program_.maps[layer.in].sequence)
                    sequence_gradient(layer, int(i), count, use);
                else if (use.single)
                    single_squares(layer, int(i), blocks, use);
                else
                    product_gradient(layer, int(i), count, use);
                break;
            case Kind::relu: k_.relu_gradient(in, din, size); break;
            case Kind::dropout:
                if (!pass.still) k_.drop(drop(layer, int(i), pass), din, size);
                break;
            case Kind::max_pool: k_.max_pool_gradient(t.pool, in, dout, din, blocks); break;
            case Kind::average_pool: k_.average_pool_gradient(t.pool, dout, din, blocks); break;
            case Kind::embedding:
                if (use.single) {
                    use.sum += embedding_squares(layer, count);
                } else {
                    embedding_gradient(layer, count, gradient_ + layer.weights);
                    use_it(use, gradient_ + layer.weights, layer.weights, int64_t(t.product.rows) * t.product.taps);
                }
                break;
            case Kind::recurrence:
                recurrence_gradient(layer, t, pass.weights, count);
                if (learns(i)) sequence_gradient(layer, int(i), count, use);
                break;
            case Kind::last: last_gradient(layer, count); break;
            case Kind::from: break;
            case Kind::sum:
                add_map(layer.out, gradients_, layer.in, layer.more, blocks);
                add_map(layer.out, gradients_, layer.other, layer.other_more, blocks);
                break;
            case Kind::norm:
                norm_gradient(i, with, pass.weights, din, blocks);
                if (learns(i)) norm_weights(layer, int(i), blocks, use);
                break;
            case Kind::batch_norm: batch_norm_gradient(layer, int(i), pass, count, with > 0, din, use); break;
        }
        if (adds) {
            k_.add(beside_, there, size);
            gradients_[layer.in] = there;
        }
        if (i > lowest) add_more(i);
    }
}

void Rounds::product_gradient(const Layer& layer, int index, int count, Use& use) {
    const Tables& t = tables_[index];
    const Product& p = t.product;
    const float *in = values_[layer.in], *dout = gradients_[layer.out];
    const int blocks = blocks_of(count);
    if (still_weights_[index]) {
        // Nothing to do: what is held has no gradient.
    } else if (p.columns == 1) {
        const Map& map = program_.maps[layer.in];
        for (int n = 0; n < blocks; ++n)
            k_.to_rows(in + int64_t(n) * map.floats(), p.tap, p.taps, rows_ + int64_t(n) * LANES * t.pitch, t.pitch);
        for (int row = 0; row < p.rows; row += ROWS) {
            const int here = std::min(ROWS, p.rows - row);
            const int64_t offset = layer.weights + int64_t(row) * p.taps;
            // The same few rows of memory each time, if their gradient is used at once.
            float* gradient = use.update ? gradient_ : gradient_ + offset;
            k_.row_gradient(p, rows_, t.pitch, dout, count, row, here, gradient);
            use_it(use, gradient, offset, int64_t(here) * p.taps);
        }
    } else {
        weight_gradient(layer, index, gradient_ + layer.weights);
        use_it(use, gradient_ + layer.weights, layer.weights, int64_t(p.rows) * p.taps);
    }
    if (layer.bias < 0 || still_bias_[index]) return;
    k_.bias_gradient(p, dout, gradient_ + layer.bias, blocks);
    use_it(use, gradient_ + layer.bias, layer.bias, p.rows);
}

// What becomes of some parameters' gradient, as soon as it is known.
void Rounds::use_it(Use& use, const float* gradient, int64_t offset, int64_t size) {
    if (use.squares) use.sum += k_.square(gradient, size);
    if (use.update) k_.update(*use.update, gradient, offset, size);
}

// The squares of each sample's own gradient. With one column it is an outer product, whose square is the product of
// two squares; a bias is a weight whose input is one.
void Rounds::single_squares(const Layer& layer, int index, int blocks, Use& use) {
    const Product& p = tables_[index].product;
    const float *in = values_[layer.in], *dout = gradients_[layer.out];
    if (p.columns > 1) {
        use.sum += k_.weight_squares(p, in, dout, blocks);
        if (layer.bias >= 0) use.sum += k_.bias_squares(p, dout, blocks);
        return;
    }
    for (int n = 0; n < blocks; ++n)
        for (int lane = 0; lane < LANES; ++lane) {
            double inputs = layer.bias >= 0 ? 1 : 0, outputs = 0;
            for (int t = 0; t < p.taps; ++t) {
                const double x = in[p.column[n] + p.tap[t] + lane];
                inputs += x * x;
            }
            for (int o = 0; o < p.rows; ++o) {
                const double d = dout[p.place[n] + int64_t(o) * p.plane + lane];
                outputs += d * d;
            }
            use.sum += inputs * outputs;
        }
}

void Rounds::step_all(const Update& update) {
    for (size_t i = 0; i < tables_.size(); ++i) {
        const Layer& layer = program_.layers[i];
        if (!layer.learns()) continue;
        const Product& p = tables_[i].product;
        if (!still_weights_[i])
            k_.update(update, gradient_ + layer.weights, layer.weights, int64_t(p.rows) * p.taps);
        if (layer.bias >= 0 && !still_bias_[i]) k_.update(update, gradient_ + layer.bias, layer.bias, p.rows);
    }
}

// A map's numbers, sample by sample.
void Rounds::take(int map, int count, float* rows) {
    const Map& m = program_.maps[map];
    if (m.sequence) return take_rows(map, count, rows);
    const int features = m.features(), pitch = whole_blocks(features);
    for (int first = 0; first < count; first += LANES) {
        const float* block = values_[map] + int64_t(first / LANES) * m.floats();
        k_.to_rows(block, place_[map].data(), features, spare_.data(), pitch);
        for (int b = 0; b < std::min(LANES, count - first); ++b)
            std::copy_n(spare_.data() + int64_t(b) * pitch, features, rows + int64_t(first + b) * features);
    }
}

// Adds gradients, sample by sample, to a map's.
void Rounds::give(int map, int count, const float* rows) {
    const Map& m = program_.maps[map];
    if (m.sequence) return give_rows(map, count, rows);
    const int features = m.features();
    const float* samples[LANES];
    for (int first = 0; first < count; first += LANES) {
        for (int b = 0; b < LANES; ++b)
            samples[b] = first + b < count ? rows + int64_t(first + b) * features : blank_.data();
        k_.to_lanes(samples, features, packed_.data(), spare_.data());
        float* block = gradients_[map] + int64_t(first / LANES) * m.floats();
        for (int f = 0; f < features; ++f)
            for (int b = 0; b < LANES; ++b) block[place_[map][f] + b] += spare_[int64_t(f) * LANES + b];
    }
}

// Adds the gradient of a contrast to that of its map.
void Rounds::contrast(const Contrast& c, int count) {
    const int map = program_.map_at(c.place);
    const Map& m = program_.maps[map];
    if (m.sequence) throw std::invalid_argument("a contrast of whole sequences");
    const int64_t features = m.features();
    float *near = spare_.data(), *far = near + features * LANES;
    const float *to_near[LANES], *to_far[LANES];
    for (int first = 0; first < count; first += LANES) {
        const int here = std::min(LANES, count - first);
        for (int b = 0; b < LANES; ++b) {
            to_near[b] = b < here ? c.near + c.row[first + b] * features : blank_.data();
            to_far[b] = b < here ? c.far + c.row[first + b] * features : blank_.data();
        }
        k_.to_lanes(to_near, int(features), packed_.data(), near);
        k_.to_lanes(to_far, int(features), packed_.data(), far);
        const int64_t block = int64_t(first / LANES) * m.floats();
        k_.contrast(kept_.data() + block, place_[map].data(), int(features), near, far, here,
                    c.strength / float(count), c.temperature, gradients_[map] + block);
    }
}

// Which elements a layer drops in a step is named by the visit's seed, the step and the layer.
Drop Rounds::drop(const Layer& layer, int index, const Pass& pass) const {
    const uint64_t key = mixed(mixed(pass.seed ^ mixed(uint64_t(pass.step))) ^ uint64_t(index));
    const double kept = 1.0 - double(layer.dropped);
    const double threshold = std::min(double(layer.dropped) * 4294967296.0, 4294967295.0);
    return {{uint32_t(key), uint32_t(key >> 32)}, uint32_t(threshold), kept > 0 ? float(1.0 / kept) : 0.0f};
}

namespace {

#if defined(POLYRHYTHM_X86) && defined(_WIN32)

// What __builtin_cpu_supports looks at lies in a library that clang-cl does not link.
bool has(int leaf, int word, uint32_t bits) {
    int most[4], found[4];
    __cpuid(most, 0);
    if (most[0] < leaf) return false;
    __cpuidex(found, leaf, 0);
    return (uint32_t(found[word]) & bits) == bits;
}

// Whether the system keeps those registers when it changes from one thread to another.
bool kept(uint32_t registers) {
    uint32_t low, high;
    if (!has(1, 2, 1u << 27)) return false;  // OSXSAVE
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}

bool narrow() { return kept(0x6) && has(1, 2, 1u << 12 | 1u << 28) && has(7, 1, 1u << 5); }  // FMA, AVX; AVX2
bool wide() { return kept(0xe6) && has(7, 1, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31); }  // F DQ CD BW VL

#elif defined(POLYRHYTHM_X86)

bool narrow() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool wide() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

#endif

std::vector<const Kernels*> usable() {
    std::vector<const Kernels*> found;
#ifdef POLYRHYTHM_X86
    if (narrow() && wide()) found.push_back(&kernels_avx512);
    if (narrow()) found.push_back(&kernels_avx2);
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
