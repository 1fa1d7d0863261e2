#include "program.h"

#include <stdexcept>

Program::Program(int channels, int height, int width, int64_t size, Objective objective)
    : maps{{channels, height, width}}, size(size), objective(objective) {}

void Program::product(int64_t weights, int64_t bias, int rows, Window window) {
    maps.back().above = window.above, maps.back().beside = window.beside;
    const Map in = maps.back();
    if (in.rows() < window.height || in.columns() < window.width)
        throw std::invalid_argument("a window that is larger than what it looks at");
    const int64_t taps = int64_t(in.channels) * window.height * window.width;
    if (weights < 0 || weights + rows * taps > size || bias + rows > size)
        throw std::invalid_argument("weights outside of the vector");
    layers.push_back({Kind::product, int(maps.size()) - 1, int(maps.size()), window, weights, bias});
    leads_to({rows, window.rows(in.height), window.columns(in.width)});
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
    leads_to({in.channels, window.rows(in.height), window.columns(in.width)});
}

void Program::leads_to(Map map) {
    if (map.channels < 1 || map.height < 1 || map.width < 1) throw std::invalid_argument("a layer without outputs");
    maps.push_back(map);
}
