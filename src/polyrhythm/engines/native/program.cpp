#include "program.h"

#include <algorithm>
#include <stdexcept>

Program::Program(int channels, int height, int width, int64_t size, Objective objective)
    : maps{{channels, height, width, false}}, size(size), objective(objective) {}

void Program::product(int64_t weights, int64_t bias, int rows, Window window) {
    Map& in = maps[here_];
    in.above = std::max(in.above, window.above), in.beside = std::max(in.beside, window.beside);
    if (in.height + 2 * window.above < window.height || in.width + 2 * window.beside < window.width)
        throw std::invalid_argument("a window that is larger than what it looks at");
    if (in.sequence && (window.height > 1 || window.width > 1 || window.across > 1 || window.beside || in.parts > 1))
        throw std::invalid_argument("a window over a sequence, or over gates");
    const int64_t taps = int64_t(in.channels) * window.height * window.width;
    if (weights < 0 || weights + rows * taps > size || bias + rows > size)
        throw std::invalid_argument("weights outside of the vector");
    layers.push_back({Kind::product, here_, int(maps.size()), window, weights, bias});
    leads_to({rows, window.rows(in.height), window.columns(in.width), in.sequence});
}

// A linear layer looks at the whole map through one window; its weights lie in the order in which flattening would
// have put the map's numbers.
void Program::linear(int64_t weights, int64_t bias, int rows) {
    const Map in = maps[here_];
    product(weights, bias, rows, {in.height, in.width, 1, 1, 0, 0});
}

void Program::relu() { layers.push_back({Kind::relu, here_, here_}); }

void Program::dropout(float share) {
    layers.push_back({Kind::dropout, here_, here_});
    layers.back().dropped = share;
}

void Program::pool(Kind kind, Window window, bool whole_area) {
    const Map in = maps[here_];
    layers.push_back({kind, here_, int(maps.size()), window});
    layers.back().whole_area = whole_area;
    leads_to({in.channels, window.rows(in.height), window.columns(in.width), false});
}

// Of each number of a sample, a token, the vector of so many numbers that stands for it: a sequence of pixels.
void Program::embedding(int64_t weights, int tokens, int width) {
    const Map in = maps.back();
    if (maps.size() > 1 || in.height != 1 || in.width != 1) throw std::invalid_argument("tokens are samples");
    if (tokens < 1 || weights < 0 || weights + int64_t(tokens) * width > size)
        throw std::invalid_argument("weights outside of the vector");
    layers.push_back({Kind::embedding, 0, 1, {}, weights});
    layers.back().tokens = tokens;
    leads_to({width, 1, in.channels, true});
}

// An LSTM's way along a sequence, whose pixels already hold what its gates make of the inputs.
void Program::recurrence(int64_t weights, int64_t bias) {
    const Map in = maps[here_];
    const int64_t hidden = in.channels / 4;
    if (!in.sequence || in.channels % 4 || layers.back().kind != Kind::product || layers.back().out != here_)
        throw std::invalid_argument("a recurrence over what are no four gates");
    if (weights < 0 || weights + 4 * hidden * hidden > size || bias + 4 * hidden > size)
        throw std::invalid_argument("weights outside of the vector");
    maps[here_].parts = 4;
    layers.push_back({Kind::recurrence, here_, int(maps.size()), {}, weights, bias});
    leads_to({int(hidden), 1, in.width, true});
}

void Program::last() {
    const Map in = maps[here_];
    if (!in.sequence) throw std::invalid_argument("the last pixel of what is no sequence");
    layers.push_back({Kind::last, here_, int(maps.size())});
    leads_to({in.channels, 1, 1, false});
}

void Program::from(int place) {
    if (place < 0 || size_t(place) > layers.size()) throw std::invalid_argument("a place that is not there yet");
    here_ = map_at(place);
    layers.push_back({Kind::from, here_, here_});
}

void Program::sum(int place) {
    if (place < 0 || size_t(place) > layers.size()) throw std::invalid_argument("a place that is not there yet");
    const Map in = maps[here_], other = maps[map_at(place)];
    if (in.channels != other.channels || in.height != other.height || in.width != other.width || in.sequence ||
        other.sequence || here_ == map_at(place))
        throw std::invalid_argument("a sum of maps of other shapes");
    layers.push_back({Kind::sum, here_, int(maps.size())});
    layers.back().other = map_at(place);
    leads_to({in.channels, in.height, in.width, false});
}

void Program::norm(int64_t weights, int64_t bias, int groups, float epsilon) {
    const Map in = maps[here_];
    if (groups < 1 || in.channels % groups || in.sequence) throw std::invalid_argument("groups of other sizes");
    if (weights + in.channels > size || bias + in.channels > size)
        throw std::invalid_argument("weights outside of the vector");
    layers.push_back({Kind::norm, here_, int(maps.size()), {}, weights, bias});
    layers.back().groups = groups, layers.back().epsilon = epsilon;
    leads_to({in.channels, in.height, in.width, false});
}

void Program::batch_norm(int64_t weights, int64_t bias, float epsilon, double momentum, bool live) {
    const Map in = maps[here_];
    if (in.sequence) throw std::invalid_argument("a norm over a batch of sequences");
    if (weights + in.channels > size || bias + in.channels > size)
        throw std::invalid_argument("weights outside of the vector");
    layers.push_back({Kind::batch_norm, here_, int(maps.size()), {}, weights, bias});
    Layer& layer = layers.back();
    layer.epsilon = epsilon, layer.momentum = momentum, layer.live = live, layer.statistics = statistics;
    statistics += 2 * in.channels;
    leads_to({in.channels, in.height, in.width, false});
}

void Program::leads_to(Map map) {
    if (map.channels < 1 || map.height < 1 || map.width < 1) throw std::invalid_argument("a layer without outputs");
    maps.push_back(map);
    here_ = int(maps.size()) - 1;
    // Of all that read a map the last comes first on the way back.
    const Layer& reader = layers.back();
    for (size_t i = 0; i + 1 < layers.size(); ++i) {
        const Layer& layer = layers[i];
        if (layer.in_place()) continue;
        for (const int read : {reader.in, reader.kind == Kind::sum ? reader.other : reader.in}) {
            if (layer.in == read) layers[i].more = true;
            if (layer.kind == Kind::sum && layer.other == read) layers[i].other_more = true;
        }
    }
}
