// A network as a list of steps over one flat vector of weights.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

// Where a layer's numbers lie: channels of height × width, each channel with a border of zeros (its halo) for the
// convolutions that read it, so that padding costs no test; it is as wide as the widest of them wants. A sequence is one
// row of pixels, whose numbers lie sample by sample (`Row`), without a halo.
struct Map {
    int channels, height, width;
    bool sequence = false;
    int above = 0, beside = 0;  // the halo's rows and columns, on each side
    int parts = 1;              // of a sequence: the gates of an LSTM are four

    int rows() const { return height + 2 * above; }
    int columns() const { return width + 2 * beside; }
    int features() const { return channels * height * width; }
    Row row() const {  // of a sequence
        const int each = channels / parts, part = (each + LANES - 1) / LANES * LANES;
        return {parts, each, part, parts * part};
    }
    int floats() const {  // of one block
        return (sequence ? width * row().floats : channels * rows() * columns()) * LANES;
    }
    // The sixteen lanes of a pixel of the padded map; of the map itself with `inside`.
    int padded(int c, int y, int x) const { return ((c * rows() + y) * columns() + x) * LANES; }
    int plane() const { return rows() * columns() * LANES; }  // floats from one channel to the next
    int inside(int c, int y, int x) const { return padded(c, y + above, x + beside); }
};

struct Window {
    int height, width, down, across, above, beside;  // kernel, stride, padding

    int rows(int height_in) const { return (height_in + 2 * above - height) / down + 1; }
    int columns(int width_in) const { return (width_in + 2 * beside - width) / across + 1; }
};

enum class Kind { product, relu, dropout, max_pool, average_pool, embedding, recurrence, last, from, sum, norm, batch_norm };
enum class Loss { cross_entropy, binary_cross_entropy };

struct Layer {
    Kind kind;
    int in, out;             // maps; the same for a layer that works in place
    Window window = {};      // of a product or a pool
    int64_t weights = 0;     // where in the flat vector; of what learns
    int64_t bias = -1;       // the same, or -1 without
    float dropped = 0;       // share to drop
    bool whole_area = true;  // of an average: whether it counts the padding
    int tokens = 0;          // that an embedding knows
    int other = 0;           // the second map of a sum
    int groups = 0;          // of channels, in a norm
    float epsilon = 0;       // the same
    int64_t statistics = -1; // where a batch norm's running means begin in the vector of them, then its variances
    double momentum = 0;     // by how much of the way these move in a step
    bool live = true;        // whether training norms by the batch, and moves them
    bool more = false;       // whether a later layer reads the same map, so that gradients add up there
    bool other_more = false; // the same of the second

    bool learns() const {
        const bool scaled = (kind == Kind::norm || kind == Kind::batch_norm) && (weights >= 0 || bias >= 0);
        return kind == Kind::product || kind == Kind::embedding || kind == Kind::recurrence || scaled;
    }
    bool in_place() const { return in == out; }
};

// What training minimises. `smoothing` and `weight` are settings of the task.
struct Objective {
    Loss loss;
    float smoothing = 0;  // of labels, for cross entropy
    float weight = 1;     // of each label's loss, for binary cross entropy
};

// The list of steps, built layer by layer.
class Program {
public:
    Program(int channels, int height, int width, int64_t size, Objective objective);

    void product(int64_t weights, int64_t bias, int rows, Window window);
    void linear(int64_t weights, int64_t bias, int rows);
    void relu();
    void dropout(float share);
    void pool(Kind kind, Window window, bool whole_area);
    void embedding(int64_t weights, int tokens, int width);
    void recurrence(int64_t weights, int64_t bias);
    void last();
    void from(int place);  // the next layer reads what the first so many layers lead to
    void sum(int place);   // of what there is and that
    void norm(int64_t weights, int64_t bias, int groups, float epsilon);
    void batch_norm(int64_t weights, int64_t bias, float epsilon, double momentum, bool live);

    std::vector<Map> maps;
    std::vector<Layer> layers;
    int64_t size;  // of the flat vector
    int64_t statistics = 0;  // running ones of batch norms, one norm after the other
    Objective objective;

    // The map that the first `place` layers lead to.
    int map_at(int place) const { return place ? layers[place - 1].out : 0; }

private:
    void leads_to(Map map);
    int here_ = 0;  // the map that the next layer reads
};
