// Norms, and what is computed with them in one pass over memory: a ReLU after a norm, or a sum and a ReLU.
#include "rounds.h"

namespace {

const float* at(const float* weights, int64_t offset) { return offset < 0 ? nullptr : weights + offset; }

// Lets a norm lead to the sum that follows it, and tells where the map lies that is added.
void lead_to(Norm& q, const Map& out, const Map& other) {
    q.out = out.inside(0, 0, 0), q.out_row = out.columns() * LANES, q.out_plane = out.plane();
    q.out_block = out.floats();
    q.other = other.inside(0, 0, 0), q.other_row = other.columns() * LANES, q.other_plane = other.plane();
    q.other_block = other.floats();
}

}  // namespace

// How many of the first `layers` layers follow a norm and are computed with it: none where a tap, or a contrast at
// `place`, looks at what lies between them, and no sum after a batch norm.
size_t Rounds::with_norm(size_t norm, size_t layers, const std::vector<Tap>& taps, int place) const {
    const auto& all = program_.layers;
    size_t last = norm + 1;
    if (all[norm].kind == Kind::norm && last < layers && all[last].kind == Kind::sum && !all[last].more) ++last;
    if (last >= layers || all[last].kind != Kind::relu) return 0;
    const auto between = [&](int place) { return place > int(norm) && place <= int(last); };
    for (const Tap& tap : taps)
        if (between(tap.place)) return 0;
    return between(place) ? 0 : last - norm;
}

// How many layers up to a ReLU go back with the norm before them. A gradient that others are added to is left to the
// sum.
size_t Rounds::with_norm_before(size_t index, const std::vector<Tap>& taps, int place) const {
    const auto& all = program_.layers;
    if (all[index].kind != Kind::relu || index < 2) return 0;
    const Layer& before = all[index - 1];
    const bool sum = before.kind == Kind::sum;
    const Kind kind = all[index - 1 - sum].kind;
    if (kind != Kind::norm && (sum || kind != Kind::batch_norm)) return 0;
    if (sum && (before.other_more || !gradients_[before.other])) return 0;
    return with_norm(index - 1 - sum, all.size(), taps, place);
}

void Rounds::norm(size_t index, size_t with, const float* weights, int blocks) {
    const Layer& layer = program_.layers[index];
    Norm q = norm_of(layer, blocks);
    float* out = values_[layer.out];
    q.relu = with > 0;
    if (with == 2) {
        const Layer& sum = program_.layers[index + 1];
        lead_to(q, program_.maps[sum.out], program_.maps[sum.other]);
        q.added = values_[sum.other], out = values_[sum.out];
    }
    k_.norm(q, at(weights, layer.weights), at(weights, layer.bias), values_[layer.in], out, tables_[index].moments);
}

void Rounds::norm_gradient(size_t index, size_t with, const float* weights, float* din, int blocks) {
    const Layer& layer = program_.layers[index];
    const Tables& t = tables_[index];
    Norm q = norm_of(layer, blocks);
    const float* dout = gradients_[layer.out];
    q.relu = with > 0;
    if (with == 2) {
        const Layer& sum = program_.layers[index + 1];
        lead_to(q, program_.maps[sum.out], program_.maps[sum.other]);
        q.sum = values_[sum.out], q.dadded = gradients_[sum.other], dout = gradients_[sum.out];
    }
    k_.norm_gradient(q, at(weights, layer.weights), at(weights, layer.bias), values_[layer.in], t.moments, dout, din,
                     t.scales, t.scales + int64_t(program_.maps[layer.in].channels) * LANES * blocks);
}
