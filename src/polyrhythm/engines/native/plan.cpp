#include "plan.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace {

constexpr int FEW = 4;              // channels, of which fewer leave most of a tile of one place of the window empty
#ifdef POLYRHYTHM_SQUARES  // of a check, which has every convolution that can be cut into squares cut into them
constexpr int SQUARES = POLYRHYTHM_SQUARES;
constexpr bool ALWAYS = true;
#else
constexpr int SQUARES = 16;  // registers of a convolution's squares that are computed together
constexpr bool ALWAYS = false;
#endif
constexpr double WORTHWHILE = 0.9;  // of all work: what leaves out, or packs, does no more than that of it

int whole(int floats) { return (floats + LANES - 1) / LANES * LANES; }

}  // namespace

bool Plan::Look::operator<(const Look& other) const {
    return std::tie(top, bottom, left, right) < std::tie(other.top, other.bottom, other.left, other.right);
}

Plan::Look Plan::look(const Map& in, const Window& w, int row, int first, int last) {
    return {std::max(0, w.above - row * w.down), std::min(w.height, w.above + in.height - row * w.down),
            std::max(0, w.beside - last * w.across), std::min(w.width, w.beside + in.width - first * w.across)};
}

Plan::Plan(const Map& in, const Map& out, const Window& window, const Product& blocks, int count)
    : product(blocks) {
    const int used = (count + LANES - 1) / LANES, row = whole(out.width * count) / LANES;
    std::vector<Look> looks, packed_looks;
    for (int n = 0; n < used; ++n)
        for (int y = 0; y < out.height; ++y)
            for (int x = 0; x < out.width; ++x) looks.push_back(look(in, window, y, x, x));
    for (int y = 0; y < out.height; ++y)
        for (int k = 0; k < row; ++k)
            packed_looks.push_back(look(in, window, y, k * LANES / count,
                                        std::min(out.width - 1, (k * LANES + LANES - 1) / count)));

    const int places = window.height * window.width;
    const auto cost = [&](const std::vector<Look>& of) {
        int64_t all = 0;
        for (const Look& l : of) all += int64_t(std::max(0, l.bottom - l.top)) * std::max(0, l.right - l.left);
        const int64_t full = int64_t(of.size()) * places;
        const bool few = in.channels < FEW || double(all) > WORTHWHILE * double(full);
        return std::make_pair(few ? full : all, !few);
    };
    const auto [plain, plain_sparse] = cost(looks);
    const auto [dense, dense_sparse] = cost(packed_looks);
    const int registers = ((out.height / 2) * (out.width / 2) * count + LANES - 1) / LANES;
    if (window.height == 3 && window.width == 3 && window.down == 1 && window.across == 1 && out.height % 2 == 0 &&
        out.width % 2 == 0) {
        // Products of squares, what turns their inputs and outputs, and what turns the weights.
        const double turns = 1.1 + 4.0 / out.channels + 4.0 / in.channels;
        square = ALWAYS || 16 * registers * turns + 16 < WORTHWHILE * double(std::min(plain, dense));
    }
    if (square) {
        cut(in, out, window, count);
        return;
    }
    packed = double(dense) <= WORTHWHILE * double(plain);
    sparse = packed ? dense_sparse : plain_sparse;
    product.columns *= used;
    if (packed) pack(in, out, window, count);
    if (sparse) leave_out(in, window, packed ? packed_looks : looks);
}

// Packed inputs: of each channel and row, and of each remainder of a column by the stride, the columns one after the
// other, so that neighbours in a row of outputs look at neighbours. Around them is the border that this window wants; what
// no window looks at is left out. Packed outputs: each row begins on a new sixteen.
void Plan::pack(const Map& in, const Map& out, const Window& w, int count) {
    const int rows = in.height + 2 * w.above, columns = in.width + 2 * w.beside;
    const int each = (columns + w.across - 1) / w.across, line = each * w.across * count;
    const auto spot = [&](int y, int x) { return y * line + (x % w.across * each + x / w.across) * count; };
    for (int y = 0; y < rows; ++y)
        for (int rest = 0; rest < std::min(w.across, w.width) && y % w.down < w.height; ++rest)
            for (int x = rest; x < columns; x += w.across)
                in_lane_.push_back(in.inside(0, y - w.above, x - w.beside)), in_spot_.push_back(spot(y, x));
    const int row = whole(out.width * count), plane = out.height * row;
    for (int y = 0; y < out.height; ++y)
        for (int x = 0; x < out.width; ++x)
            out_lane_.push_back(out.inside(0, y, x)), out_spot_.push_back(y * row + x * count);

    const int channel = rows * line;
    whole_inputs = w.height >= w.down && w.width >= w.across;
    for (int c = 0; c < in.channels; ++c)
        for (int y = 0; y < w.height; ++y)
            for (int x = 0; x < w.width; ++x) tap_.push_back(c * channel + spot(y, x));
    for (int y = 0; y < out.height; ++y)
        for (int at = 0; at < row; at += LANES)
            column_.push_back(y * w.down * line + at), place_.push_back(y * row + at);
    product = {product.rows, product.taps, int(column_.size()), tap_.data(), column_.data(), place_.data(), plane};

    const int used = (count + LANES - 1) / LANES, last = count - (used - 1) * LANES;
    inputs = {in.channels, int(in_lane_.size()), in_lane_.data(), in_spot_.data(), in.plane(),
              channel, used, in.floats(), last};
    outputs = {out.channels, int(out_lane_.size()), out_lane_.data(), out_spot_.data(),
               out.plane(), plane, used, out.floats(), last};
    // The last sums of a row may look beyond the last column, and a register is written beyond the last sample.
    in_floats = int64_t(in.channels) * channel + 2 * LANES;
    out_floats = int64_t(out.channels) * plane + LANES;
    this->in = aligned(room_in_, in_floats), dout = aligned(room_dout_, out_floats);
}

void Plan::cut(const Map& in, const Map& out, const Window& w, int count) {
    const auto corner = [](std::vector<int>& into, const Map& map, int top, int left) {
        for (int y = top; y < top + 2; ++y)
            for (int x = left; x < left + 2; ++x) into.push_back(map.inside(0, y, x));
    };
    for (int top = 0; top < out.height; top += 2)
        for (int left = 0; left < out.width; left += 2) {
            for (int y = top; y < top + 4; ++y)
                for (int x = left; x < left + 4; ++x) square_look_.push_back(in.inside(0, y - w.above, x - w.beside));
            corner(square_place_, out, top, left);
        }
    for (int top = 0; top < in.height; top += 2)
        for (int left = 0; left < in.width; left += 2) {
            for (int y = top + w.above - 2; y < top + w.above + 2; ++y)
                for (int x = left + w.beside - 2; x < left + w.beside + 2; ++x)
                    square_back_.push_back(
                        y < 0 || x < 0 || y >= out.height || x >= out.width ? -1 : out.inside(0, y, x));
            corner(square_home_, in, top, left);
        }
    const int together = std::max(1, SQUARES * LANES / count);
    // An odd number of lines of a cache, or channels would lie in the same few of its places.
    const int line = ((whole(together * count) / LANES + 1) | 1) * LANES;
    for (int c = 0; c < in.channels; ++c) square_begin_.push_back(c * line);
    squares = {in.channels, out.channels, count, (count + LANES - 1) / LANES,
               int(square_place_.size()) / 4, int(square_home_.size()) / 4, together, line, in.plane(), out.plane(),
               in.floats(), out.floats(), square_look_.data(), square_place_.data(), square_back_.data(),
               square_home_.data(), square_begin_.data(), nullptr, nullptr, nullptr};
}

void Plan::leave_out(const Map& in, const Window& w, const std::vector<Look>& looks) {
    const int places = w.height * w.width;
    std::map<Look, std::vector<int>> kinds;
    for (size_t run = 0; run < looks.size(); ++run) kinds[looks[run]].push_back(int(run));
    members_.push_back(0), looks_.push_back(0);
    for (const auto& [l, runs] : kinds) {
        member_.insert(member_.end(), runs.begin(), runs.end());
        for (int c = 0; c < in.channels; ++c)
            for (int y = l.top; y < l.bottom; ++y)
                for (int x = l.left; x < l.right; ++x) look_.push_back(c * places + y * w.width + x);
        members_.push_back(int(member_.size())), looks_.push_back(int(look_.size()));
    }
    for (int t : look_) at_.push_back(product.tap[t]);
    seen_.push_back(0);
    for (int y = 0; y < w.height; ++y)
        for (int x = 0; x < w.width; ++x) {
            for (size_t run = 0; run < looks.size(); ++run) {
                const Look& l = looks[run];
                if (l.top <= y && y < l.bottom && l.left <= x && x < l.right) run_.push_back(int(run));
            }
            seen_.push_back(int(run_.size()));
        }
    taps = {in.channels, places, int(kinds.size()), members_.data(), member_.data(), looks_.data(),
            look_.data(), at_.data(), seen_.data(), run_.data(), aligned(panel_, size_t(places) * product.rows * TALL)};
}
