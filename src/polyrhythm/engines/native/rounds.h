// What a thread does with a program: a client's whole local round, or single passes. Pointers are the caller's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan.h"
#include "program.h"

// What a pass reads: some of the samples that are held.
struct Samples {
    const float* inputs;    // [held, features] of all clients
    const int64_t* labels;  // [held], or null
    const float* targets;   // [held, outputs], or null
    const int64_t* order;   // [count] rows of them
};

// What the first `place` layers make of a batch, or the loss's gradient there: [count, features], sample by sample.
struct Tap {
    int place;
    float* rows;
};

// MOON's term, strength / batch * sum of softplus((s(z, far) - s(z, near)) / temperature), with s the cosine and z what
// the first `place` layers make of a sample.
struct Contrast {
    int place;
    const float *near, *far;  // [rows, features] representations under the received model, and under the client's last
    const int64_t* row;       // [count] where those of each sample of the order are
    float strength, temperature;
};

// One client's local round, or a part of it.
struct Job {
    float* weights;       // [P] stepped in place
    const float* start;   // [P] what a pull is measured from; null without a pull
    const float* shift;   // [P] or null
    float* moment;        // [P] stepped in place, or null without momentum; Adam's first
    float* second;        // [P] stepped in place, or null: Adam's second
    Samples samples;      // batch after batch
    const int64_t* ends;  // [steps] where each batch ends
    const float* rates;   // [steps]
    int64_t steps;
    int64_t first;                      // steps of the round before these: they name what dropout draws
    float pull, decay, momentum, clip;  // clip is the largest norm, or 0 for none; momentum is Adam's beta1
    bool nesterov, gradient_squares;    // whether the gradient's norm is asked for
    uint64_t seed;                      // of dropout
    double beta2, epsilon;              // of Adam, and how many of its steps were taken before
    int64_t taken;
    bool decoupled;
    const Tap* watch;  // a place to give of every batch before its step, [ends[steps - 1], features]; or null
    bool still;        // whether that takes a pass of its own, since the step's own has dropout
    const int64_t* held;  // [holds] where parameters begin that no step touches, as if they had no gradient
    int64_t holds;
    const Contrast* contrast;  // or null
    float* statistics;         // running ones of batch norms, moved in place; or null without
};

struct Done {
    double loss = 0;              // summed over samples
    double squared_loss = 0;      // each sample's loss squared, summed
    double gradient_squares = 0;  // |gradient|^2, clipped, summed over steps
};

// The tables of a program for batches of up to some size, and room for the numbers between its layers.
class Rounds {
public:
    Rounds(const Program& program, const Kernels& kernels) : program_(program), k_(kernels) {}

    // Takes the steps of a job.
    Done run(const Job& job);

    // What the first layers make of samples, in any number, without dropout.
    void look(const float* weights, const Samples& samples, int64_t count, Tap tap, float* statistics = nullptr);

    // The sum over samples, in any number, of |gradient of its own loss|^2, without dropout and smoothing.
    double trace(const float* weights, const Samples& samples, int64_t count, float* statistics = nullptr);

    // One batch in two halves, between which the caller may think: the losses and what some layers make of the batch;
    // then the gradient [P], with more gradient added at those places.
    Done ahead(const float* weights, const Samples& samples, int count, int64_t step, uint64_t seed,
               const std::vector<Tap>& taps, float* statistics = nullptr);
    void back(const float* weights, const std::vector<Tap>& more, float* gradient);

    const Program& program() const { return program_; }
    int half_way() const { return count_; }  // samples of the batch between its halves; 0 if there is none

private:
    // With which weights, and what dropout draws.
    struct Pass {
        const float* weights;
        int64_t step;
        uint64_t seed;
        bool still;  // whether nothing is dropped, and norms are by running statistics
        float* statistics = nullptr;  // these, which move unless it is still
    };
    // What becomes of gradients on their way.
    struct Use {
        const Update* update = nullptr;  // each is stepped as soon as it is known and needed no more
        bool squares = false;            // their squares are added up, in `sum`
        bool single = false;             // the squares of each sample's own are, and nothing else is done with them
        double sum = 0;
    };
    struct Tables;

    int at_once() const;
    void make_room(int batch);
    void lay_out(int count);
    void hold(const int64_t* held, int64_t holds);
    void read(const Samples& samples, int count);
    void forward(const Pass& pass, int count, const std::vector<Tap>& taps, size_t layers, int kept = -1);
    void loss(const Samples& samples, int count, float share, float smoothing, Done& done);
    void backward(const Pass& pass, int count, const std::vector<Tap>& more, const Contrast* contrast, Use& use);
    void product(const Layer& layer, int index, const float* weights, int count);
    void input_gradient(const Layer& layer, int index, const float* weights, int count, bool more);
    void weight_gradient(const Layer& layer, int index, float* gradient);
    void product_gradient(const Layer& layer, int index, int count, Use& use);
    void single_squares(const Layer& layer, int index, int blocks, Use& use);
    void tabulate_sequence(const Layer& layer, Tables& tables, int blocks);
    void embed(const Layer& layer, const float* weights, int count);
    void embedding_gradient(const Layer& layer, int count, float* gradient, int sample = -1) const;
    double embedding_squares(const Layer& layer, int count);
    const float* row_bias(const Layer& layer, const Tables& tables, const Row& row, const float* weights) const;
    void along_sequence(const Layer& layer, const Tables& tables, const float* weights, int count);
    void back_along_sequence(const Layer& layer, const Tables& tables, const float* weights, int count);
    void recur(const Layer& layer, const Tables& tables, const float* weights, int count);
    void recurrence_gradient(const Layer& layer, const Tables& tables, const float* weights, int count);
    void sequence_gradient(const Layer& layer, int index, int count, Use& use);
    void take_rows(int map, int count, float* rows) const;
    void give_rows(int map, int count, const float* rows) const;
    Norm norm_of(const Layer& layer, int blocks) const;
    size_t with_norm(size_t norm, size_t layers, const std::vector<Tap>& taps, int place) const;
    size_t with_norm_before(size_t index, const std::vector<Tap>& taps, int place) const;
    void norm(size_t index, size_t with, const float* weights, int blocks);
    void norm_gradient(size_t index, size_t with, const float* weights, float* din, int blocks);
    void norm_weights(const Layer& layer, int index, int blocks, Use& use);
    Channel channel_of(const Layer& layer, int count) const;
    void batch_norm(const Layer& layer, int index, const Pass& pass, int count, bool relu);
    void batch_norm_gradient(const Layer& layer, int index, const Pass& pass, int count, bool relu, float* din,
                             Use& use);
    void squares_of_norm(const Channel& channel, const float* in, const float* dout, bool scales, bool shifts,
                         Use& use);
    void add_map(int from, const std::vector<float*>& numbers, int to, bool more, int blocks);
    void last(const Layer& layer, int count);
    void last_gradient(const Layer& layer, int count);
    void use_it(Use& use, const float* gradient, int64_t offset, int64_t size);
    void step_all(const Update& update);
    void take(int map, int count, float* rows);
    void give(int map, int count, const float* rows);
    void contrast(const Contrast& contrast, int count);
    Drop drop(const Layer& layer, int index, const Pass& pass) const;

    const Program program_;
    const Kernels& k_;
    int blocks_ = 0;
    std::vector<std::vector<int>> place_;          // of each feature of each map
    std::vector<int> packed_;                      // of features side by side
    std::vector<Tables> tables_;                   // one a layer
    // Of some sizes of batches, the last one used first: of each layer, how a convolution is computed, else null.
    std::vector<std::pair<int, std::vector<std::unique_ptr<Plan>>>> plans_;
    Squares squares_of(const Plan& plan) const;
    std::vector<float> room_in_, room_out_, room_v_, room_m_, room_samples_;
    float *v_ = nullptr, *m_ = nullptr, *samples_ = nullptr;  // of squares
    float *packed_in_ = nullptr, *packed_out_ = nullptr;  // numbers on their way
    std::vector<char> still_weights_, still_bias_; // of each layer, whether they are held
    std::vector<float> room_beside_;
    float* beside_ = nullptr;                      // gradients of a map that has others already
    std::vector<std::vector<float>> room_;         // what the pointers below point into
    std::vector<float*> values_, gradients_;       // one a map
    float *gradient_ = nullptr, *rows_ = nullptr;  // [P] or some rows of it; a layer's inputs, sample by sample
    std::vector<float> blank_, spare_, kept_;      // the sample in an idle lane; a block of a map; a map
    Pass pass_ = {};                               // of the batch between its two halves
    int count_ = 0;
    std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

struct Rounds::Tables {
    Product product = {};  // of a layer over a sequence rows and taps alone
    Pool pool = {};
    int pitch = 0;
    std::vector<int> tap, column, place, first;
    std::vector<float> share;
    std::vector<float> room_u;
    float* u = nullptr;  // sums of weights, for squares
    std::vector<Channel> channels;  // of a batch norm, as the last pass computed them
    // Of a norm: moments of groups, and gradients by lane.
    std::vector<float> room_moments, room_scales;
    float *moments = nullptr, *scales = nullptr;
    // Of a layer over a sequence: weights in panels, a bias as rows have it, and what a recurrence keeps.
    std::vector<float> room_panels, room_bias, room_cells, room_carry;
    float *panels = nullptr, *bias = nullptr, *cells = nullptr, *carry = nullptr;
};

// The best instruction set that this processor has, or the one of that name: "avx512", "avx2", "plain".
const Kernels& kernels_for(const std::string& name);
std::vector<std::string> kernel_names();
