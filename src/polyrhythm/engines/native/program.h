// A network as a list of steps over one flat vector of weights, and a client's whole local round through it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels.h"

// Where a layer's numbers lie: channels of height × width, each channel with a border of zeros (its halo) for the
// convolution that reads it, so that padding costs no test.
struct Map {
    int channels, height, width;
    int above = 0, beside = 0;  // the halo's rows and columns, on each side

    int rows() const { return height + 2 * above; }
    int columns() const { return width + 2 * beside; }
    int features() const { return channels * height * width; }
    int floats() const { return channels * rows() * columns() * LANES; }  // of one block
    // The sixteen lanes of a pixel of the padded map; of the map itself with `inside`.
    int padded(int c, int y, int x) const { return ((c * rows() + y) * columns() + x) * LANES; }
    int inside(int c, int y, int x) const { return padded(c, y + above, x + beside); }
};

struct Window {
    int height, width, down, across, above, beside;  // kernel, stride, padding

    int rows(int height_in) const { return (height_in + 2 * above - height) / down + 1; }
    int columns(int width_in) const { return (width_in + 2 * beside - width) / across + 1; }
};

enum class Kind { product, relu, dropout, max_pool, average_pool };
enum class Loss { cross_entropy, binary_cross_entropy };

struct Layer {
    Kind kind;
    int in, out;             // maps; the same for a layer that works in place
    Window window = {};      // of a product or a pool
    long weights = 0;        // where in the flat vector; of a product
    long bias = -1;          // the same, or -1 without
    float dropped = 0;       // share to drop
    bool whole_area = true;  // of an average: whether it counts the padding
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
    Program(int channels, int height, int width, long size, Objective objective);

    void product(long weights, long bias, int rows, Window window);
    void linear(long weights, long bias, int rows);
    void relu();
    void dropout(float share);
    void pool(Kind kind, Window window, bool whole_area);

    std::vector<Map> maps;
    std::vector<Layer> layers;
    long size;  // of the flat vector
    Objective objective;

private:
    void leads_to(Map map);
};

// One client's local round. Pointers are the caller's.
struct Job {
    float* weights;             // [P] stepped in place
    const float* start;         // [P] what a pull is measured from; null without a pull
    const float* shift;         // [P] or null
    float* moment;              // [P] stepped in place, or null without momentum
    const float* inputs;        // [held, features] of all clients
    const int64_t* labels;      // [held], or null
    const float* targets;       // [held, outputs], or null
    const int64_t* order;       // [ends[steps - 1]] rows of inputs, batch after batch
    const int64_t* ends;        // [steps] where each batch ends in it
    const float* rates;         // [steps]
    long steps;
    float pull, decay, momentum, clip;  // clip is the largest norm, or 0 for none
    bool nesterov, gradient_squares;    // whether the gradient's norm is asked for
    uint64_t seed;                      // of dropout
};

struct Done {
    double loss = 0;              // summed over samples
    double squared_loss = 0;      // each sample's loss squared, summed
    double gradient_squares = 0;  // |gradient|^2, clipped, summed over steps
};

// What a thread needs for itself: the tables of a program for batches of up to some size, and room for the numbers
// between its layers.
class Rounds {
public:
    Rounds(const Program& program, const Kernels& kernels) : program_(program), k_(kernels) {}

    Done run(const Job& job);
    const Program& program() const { return program_; }

private:
    struct Tables;
    void make_room(int batch);
    void read(const Job& job, const int64_t* order, int count);
    void forward(const Job& job, long step, int count);
    void loss(const Job& job, const int64_t* order, int count, Done& done);
    void backward(const Job& job, long step, int count, const Update* fuse);
    void product_gradient(const Layer& layer, int index, const Job& job, int count, const Update* fuse);
    Drop drop(const Layer& layer, int index, const Job& job, long step) const;

    const Program program_;
    const Kernels& k_;
    int blocks_ = 0;
    std::vector<int> place_;                      // of each feature of the input
    std::vector<Tables> tables_;                  // one a layer
    std::vector<std::vector<float>> room_;        // what the pointers below point into
    std::vector<float*> values_, gradients_;      // one a map
    float *gradient_ = nullptr, *rows_ = nullptr;  // [P] or some rows of it; a layer's inputs, sample by sample
    std::vector<float> blank_;                    // the sample in an idle lane
    std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

struct Rounds::Tables {
    Product product = {};
    Pool pool = {};
    int pitch = 0;
    std::vector<int> tap, column, place, first;
    std::vector<float> share;
};

// The best instruction set that this processor has, or the one of that name: "avx512", "avx2", "plain".
const Kernels& kernels_for(const std::string& name);
std::vector<std::string> kernel_names();
