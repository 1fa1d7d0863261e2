// The arithmetic of a step, as a table of functions that each instruction set fills with its own.
//
// Samples stand side by side: every number of a sample has its 16 neighbours, the same number of 15 other samples, next
// to it. Such a group of 16 samples is a block; its place for one sample is a lane. So every operation on a sample
// becomes the same operation on registers, whatever the shapes; a batch that fills no block leaves lanes idle, whose
// gradients are zero. There are 16 lanes on every processor: one, two or four registers, with the same sums in the same
// order, hence the same bits.
//
// This file is all that the rest of the engine shares with code for other instruction sets, and holds no inline code.
#pragma once

#include <cstdint>

constexpr int LANES = 16;
constexpr int TALL = 12;  // rows of a tile that is one register wide, enough to hide the latency

// What learns: weights [rows, taps] times a matrix [taps, columns] that is never built.
//
// Column j of it is a window into the input, and tap t a place in that window: its 16 numbers lie at
// in + column[j] + tap[t]. A linear layer has one column a block, whose window is the whole input; flattening is
// nothing. A convolution has a column for each pixel of its output.
struct Product {
    int rows, taps;
    int columns;        // of one block
    const int* tap;     // [taps]
    const int* column;  // [blocks * columns] where each column's window begins in the input
    const int* place;   // [blocks * columns] where each column's outputs lie in the output
    int plane;          // floats from one row of outputs to the next
};

// Which taps of a convolution are looked at, where those beside the image are left out. Columns that look at the same
// taps are of one kind; `window` taps belong to each channel, and each of these is looked at by some columns.
struct Sparse {
    int channels, window;
    int kinds;
    const int* members;  // [kinds + 1] where the columns of each kind begin
    const int* member;   // columns, kind by kind
    const int* looks;    // [kinds + 1] where the taps of each kind begin
    const int* look;     // taps, kind by kind
    const int* at;       // where in a window these are
    const int* seen;     // [window + 1] where the columns that look at each begin
    const int* run;      // columns, tap by tap of a channel
    float* panel;        // [window, rows, TALL] room for the weights of some channels
};

// A convolution in squares of 2 × 2 outputs. A square of all samples is `count` numbers side by side, without idle lanes,
// and so are `together` squares, one after the other, which are computed at a time.
struct Squares {
    int channels, rows;
    int count, blocks;        // samples, and blocks of these
    int squares, back;        // of outputs, and of inputs on the way back
    int together, line;       // and floats from one channel to the next of so many, with room for a register beyond them
    int in_plane, out_plane;  // floats from one channel to the next
    int in_block, out_block;
    const int *look, *place;            // [squares, 16] where a square's inputs lie in the first block; [squares, 4] its outputs
    const int *look_back, *place_back;  // the same from the outputs to the inputs; −1 beside the image
    const int* begin;                   // [channels] where each channel begins among such squares
    float *v, *m, *samples;             // room for squares of inputs and of outputs, and for samples side by side
    bool more = false;                  // whether the inputs' gradient is added to what is there
};

// Numbers of samples in blocks, and the same without idle lanes: `spot` is where those of a pixel begin, one sample
// after the other. Spots ascend, since a whole register is written to each.
struct Pack {
    int channels, pixels;  // of one channel
    const int* lane;       // [pixels] where a pixel lies in the first block
    const int* spot;       // [pixels] where it lies packed
    int from_lane, from_spot;  // floats from one channel to the next
    int blocks, block;         // and floats of a block
    int last;                  // lanes of the last block that are not idle
};

// What pools: each window is a list of places, tap[first[i]] to tap[first[i + 1] - 1]. Padding is not in the list.
struct Pool {
    int windows;
    const int* first;  // [windows + 1]
    const int* tap;
    const int* place;  // [windows]
    const float* share;  // [windows] what an average multiplies its sum by
    int in_block, out_block;  // floats of one block
};

// How an element of the weights moves, given its gradient g:
//     d = g + pull (w - start) + shift + decay w;   m = momentum m + d;   w -= rate d, or m, or d + momentum m
// With Adam, m += (1 - momentum) (d - m);   s = beta2 s + rest2 d^2;   w = keep w - rate m / (sqrt(s) / root + epsilon)
struct Update {
    float* weights;
    const float* start;  // null without a pull
    const float* shift;  // null without a shift
    float* moment;       // null without momentum
    float* second;       // s; null without Adam
    float pull, decay, momentum, rate;
    bool nesterov;
    float beta2 = 0, rest2 = 1, root = 1, epsilon = 0, keep = 1;  // of Adam; rest2 is 1 - beta2
};

// How dropout draws: element i of an array is dropped if a hash of the key and i is below the threshold.
struct Drop {
    uint32_t key[2];
    uint32_t threshold;  // share to drop, in units of 2**-32
    float scale;         // of what is kept
};

// A norm over groups of channels of a sample. Maps begin at `in` and `out` of a block.
struct Norm {
    int channels, groups, height, width, blocks;
    int in, in_row, in_plane, in_block;
    int out, out_row, out_plane, out_block;
    float epsilon;
    // What is computed with it: a ReLU, or a sum with another map, which begins at `other` of a block, and a ReLU.
    bool relu = false;
    const float* added = nullptr;  // that map
    const float* sum = nullptr;    // on the way back, what had come out
    float* dadded = nullptr;       // and the gradient of what was added
    int other = 0, other_row = 0, other_plane = 0, other_block = 0;
};

// A channel of a norm over a whole batch, from its first pixel on in each of two maps.
struct Channel {
    int height, width, blocks;
    int last;  // lanes of the last block that are not idle
    int in_row, out_row, in_block, out_block;
    float mean, by, factor, shift;  // u = by (in - mean);  out = factor (in - mean) + shift
    bool relu;                      // of which only what is above zero is left
};

// Sequences lie in rows: all samples' first pixels one after the other, then all second ones, and so on. A row holds the
// numbers of one pixel side by side, in `parts` of `each`, and each part is filled up to whole registers with zeros. So
// registers run along the numbers of a sample, and a batch of any size leaves none of their lanes idle.
struct Row {
    int parts, each;
    int part, floats;  // of a part, and of all of them
};

// Rows times a matrix that lies as `panels` lays it.
struct RowProduct {
    int rows, depth, width;  // of the rows, and rows and columns of the matrix
    int from, to;            // floats from one row to the next, of what is multiplied and of what comes of it
    bool more;               // whether it is added to what is there
};

// An LSTM's way along a sequence. Of each of `count` samples, `hidden` units, those that fill a register among them.
struct Recurrence {
    int hidden, steps, count;
};

struct Kernels {
    const char* name;

    void (*to_lanes)(const float* const* samples, int features, const int* place, float* out);
    void (*to_rows)(const float* in, const int* tap, int taps, float* rows, int pitch);

    void (*pack)(const Pack&, const float* blocks, float* packed);
    void (*unpack)(const Pack&, const float* packed, float* blocks);

    void (*forward)(const Product&, const float* weights, const float* bias, const float* in, float* out, int blocks);
    void (*input_gradient)(const Product&, const float* weights, const float* dout, float* din, int blocks);
    void (*weight_gradient)(const Product&, const float* in, const float* dout, float* dweights, int blocks);
    void (*row_gradient)(
        const Product&, const float* samples, int pitch, const float* dout, int count, int row, int rows,
        float* dweights);
    void (*bias_gradient)(const Product&, const float* dout, float* dbias, int blocks);
    void (*packed_input_gradient)(
        const Product&, int channels, const float* weights, const float* dout, float* din);
    void (*sparse_forward)(
        const Product&, const Sparse&, const float* weights, const float* bias, const float* in, float* out);
    void (*sparse_input_gradient)(
        const Product&, const Sparse&, const float* weights, const float* dout, float* din);
    void (*sparse_weight_gradient)(
        const Product&, const Sparse&, const float* in, const float* dout, float* dweights);
    void (*squares_weights)(const Squares&, const float* weights, float* u);
    void (*squares_forward)(const Squares&, const float* u, const float* bias, const float* in, float* out);
    void (*squares_input_gradient)(const Squares&, const float* u, const float* dout, float* din);
    void (*squares_weight_gradient)(const Squares&, const float* in, const float* dout, float* u, float* dweights);
    double (*weight_squares)(const Product&, const float* in, const float* dout, int blocks);
    double (*bias_squares)(const Product&, const float* dout, int blocks);

    void (*relu)(float* values, int64_t size);
    void (*relu_gradient)(const float* values, float* gradient, int64_t size);
    void (*drop)(const Drop&, float* values, int64_t size);
    void (*max_pool)(const Pool&, const float* in, float* out, int blocks);
    void (*max_pool_gradient)(const Pool&, const float* in, const float* dout, float* din, int blocks);
    void (*average_pool)(const Pool&, const float* in, float* out, int blocks);
    void (*average_pool_gradient)(const Pool&, const float* dout, float* din, int blocks);

    void (*norm)(
        const Norm&, const float* scale, const float* shift, const float* in, float* out, float* moments);
    void (*norm_gradient)(
        const Norm&, const float* scale, const float* shift, const float* in, const float* moments, const float* dout,
        float* din, float* dscale, float* dshift);
    void (*batch_moments)(const Channel&, const float* in, double* moments);
    void (*batch_norm)(const Channel&, const float* in, float* out);
    void (*batch_norm_sums)(const Channel&, const float* in, const float* dout, float* lanes);
    void (*batch_norm_gradient)(
        const Channel&, float apart, float plus, const float* in, const float* dout, float* din);
    void (*add)(const float* values, float* to, int64_t size);
    void (*panels)(
        const float* from, const Row& across, int64_t column, const Row& down, int64_t row, float* to);
    void (*row_product)(
        const RowProduct&, const float* rows, const float* panels, const float* bias, float* to);
    void (*row_weights)(
        int count, int rows, const float* dout, int64_t out, const float* in, int64_t from, int taps, float* dweights);
    void (*row_sums)(int count, const float* rows, int64_t from, int width, float* sums);
    void (*recurrence)(
        const Recurrence&, const float* weights, const float* bias, float* gates, float* cells, float* states);
    void (*recurrence_gradient)(
        const Recurrence&, const float* turned, const float* gates, const float* cells, float* dstates, float* carry,
        float* dgates);

    void (*cross_entropy)(
        float* logits, int classes, const int64_t* labels, int count, float smoothing, float share, double* losses);
    void (*binary_cross_entropy)(
        float* logits, int labels, const float* const* targets, int count, float weight, float share, double* losses);
    void (*contrast)(
        const float* z, const int* place, int features, const float* near, const float* far, int count, float strength,
        float temperature, float* dz);

    void (*update)(const Update&, const float* gradient, int64_t offset, int64_t size);
    double (*square)(const float* values, int64_t size);
    void (*scale)(float* values, int64_t size, float by);

    float (*difference)(float* out, const float* a, const float* b, int64_t size);
    void (*lengths)(const float* a, int64_t size, float* out);
    void (*weighted_sum)(
        float* out, const float* const* vectors, const float* weights, int64_t count, int64_t size, float* room);
};

// Of all vectors so many elements are summed at a time, in `room` for so many partial sums of them.
constexpr int64_t SPAN = 4096, PARTIAL_SUMS = 64;

// Lengths are of so many elements at a time.
constexpr int64_t BLOCK = 1024;

// From so many elements on, a vector is written past the caches.
constexpr int64_t FAR = int64_t(1) << 18;

// Every instruction set that was compiled, the best first; the last one runs everywhere.
extern const Kernels kernels_avx512, kernels_avx2, kernels_plain;
