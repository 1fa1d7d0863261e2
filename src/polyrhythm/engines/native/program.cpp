#include "program.h"

#include <stdexcept>

Program::Program(int channels, int height, int width, int64_t size, Objective objective)
    : maps{{channels, height, width, false}}, size(size), objective(objective) {}

void Program::product(int64_t weights, int64_t bias, int rows, Window window) {
    maps.back().above = window.above, maps.back().beside = window.beside;
    const Map in = maps.back();
    if (in.rows() < window.height || in.columns() < window.width)
        throw std::invalid_argument("a window that is larger than what it looks at");
    const int64_t taps = int64_t(in.channels) * window.height * window.width;
    if (weights < 0 || weights + rows * taps > size || bias + rows > size)
        throw std::invalid_argument("weights outside of the vector");
    layers.push_back({Kind::product, int(maps.size()) - 1, int(maps.size()), window, weights, bias});
    leads_to({rows, window.rows(in.height), window.columns(in.width), in.sequence});
}

// A linear layer looks at the whole map through one window; its weights lie in the order in which flattening would
// have put the map's numbers.
void Program::linear(int64_t weights, int64_t bias, int rows) {
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
    const Map in = maps.back();
    const int64_t hidden = in.channels / 4;
    if (!in.sequence || in.channels % 4) throw std::invalid_argument("a recurrence over what are no four gates");
    if (weights < 0 || weights + 4 * hidden * hidden > size || bias + 4 * hidden > size)
        throw std::invalid_argument("weights outside of the vector");
    layers.push_back({Kind::recurrence, int(maps.size()) - 1, int(maps.size()), {}, weights, bias});
    leads_to({int(hidden), 1, in.width, true});
}

void Program::last() {
    const Map in = maps.back();
    if (!in.sequence) throw std::invalid_argument("the last pixel of what is no sequence");
    layers.push_back({Kind::last, int(maps.size()) - 1, int(maps.size())});
    leads_to({in.channels, 1, 1, false});
}

void Program::leads_to(Map map) {
    if (map.channels < 1 || map.height < 1 || map.width < 1) throw std::invalid_argument("a layer without outputs");
    maps.push_back(map);
}
