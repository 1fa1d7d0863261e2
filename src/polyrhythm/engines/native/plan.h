// How a convolution is computed for batches of one size: which sums are made side by side, and which are left out.
//
// A batch that is no multiple of 16 leaves lanes of its blocks idle. Packed, the samples of a batch stand side by side
// without a gap, pixel after pixel of a row, and the sums of a row are made sixteen at a time, whichever pixels these
// belong to. What looks at the border of zeros around an image looks at nothing: such taps are left out, where that
// saves much. Both follow from the sizes alone, so that a batch has the same bits wherever it is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program.h"

// Room for so many zeros, on a boundary of 64 bytes.
inline float* aligned(std::vector<float>& room, size_t floats) {
    room.assign(floats + 16, 0.0f);
    const auto at = reinterpret_cast<uintptr_t>(room.data());
    return reinterpret_cast<float*>((at + 63) & ~uintptr_t(63));
}

//
// Where it saves more, a convolution of 3 × 3 with stride 1 is computed in squares of 2 × 2 outputs.
struct Plan {
    Plan(const Map& in, const Map& out, const Window& window, const Product& blocks, int count);
    Plan(const Plan&) = delete;

    bool packed = false, sparse = false, square = false;
    Product product = {};   // over one block of packed numbers, or over the blocks that it was given
    Sparse taps = {};       // if `sparse`: which taps are looked at
    Pack inputs = {}, outputs = {};
    bool whole_inputs = false;  // if `packed`: whether there is no input that no window looks at
    Squares squares = {};   // if `square`, without room
    int64_t in_floats = 0, out_floats = 0;  // of the packed numbers, with room for a register beyond them
    float *in = nullptr, *dout = nullptr;   // those that stay from one pass to the next; gaps in `dout` are zeros

private:
    struct Look {
        int top, bottom, left, right;  // places of the window that lie inside, as half-open ranges
        bool operator<(const Look& other) const;
    };
    // What some neighbours in a row of outputs look at, together.
    static Look look(const Map& in, const Window& window, int row, int first, int last);
    void pack(const Map& in, const Map& out, const Window& window, int count);
    void cut(const Map& in, const Map& out, const Window& window, int count);
    void leave_out(const Map& in, const Window& window, const std::vector<Look>& looks);

    std::vector<int> tap_, column_, place_, in_lane_, in_spot_, out_lane_, out_spot_;
    std::vector<float> room_in_, room_dout_, panel_;
    std::vector<int> square_look_, square_place_, square_back_, square_home_, square_begin_;
    std::vector<int> members_, member_, looks_, look_, at_, seen_, run_;
};
