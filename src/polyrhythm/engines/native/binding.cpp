// What Python sees of the engine: a Program to build, and Rounds to run it. Shapes and ranges are checked here, once
// for each round, so that nothing behind this file has to look again.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <tuple>

#include "normals.h"
#include "rounds.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ReadFloats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ReadTable = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ReadWholes = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void must(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

template <class Array>
auto pointer(const std::optional<Array>& array, size_t size) -> decltype(array->data()) {
    must(!array || array->size() == size, "a vector of another size");
    return array ? array->data() : nullptr;
}

// The samples of a pass. Without labels and targets there is no loss.
Samples samples_of(
    const Program& program, const ReadTable& inputs, const std::optional<ReadWholes>& labels,
    const std::optional<ReadTable>& targets, const ReadWholes& order, bool judged) {
    const size_t held = inputs.shape(0);
    const int64_t outputs = program.maps.back().features();
    must(inputs.shape(1) == size_t(program.maps.front().features()), "samples of another shape");
    for (size_t i = 0; i < order.size(); ++i)
        must(order.data()[i] >= 0 && size_t(order.data()[i]) < held, "samples that are there");
    if (program.layers.size() && program.layers[0].kind == Kind::embedding) {
        const size_t each = inputs.shape(1);
        const float most = float(program.layers[0].tokens);
        for (size_t i = 0; i < order.size() * each; ++i) {
            const float token = inputs.data()[size_t(order.data()[i / each]) * each + i % each];
            must(token >= 0 && token < most && token == float(int64_t(token)), "tokens that the embedding knows");
        }
    }
    if (!judged) return {inputs.data(), nullptr, nullptr, order.data()};
    if (program.objective.loss == Loss::cross_entropy) {
        must(labels && labels->size() == held, "a label for each sample");
        for (size_t i = 0; i < order.size(); ++i) {
            const int64_t label = labels->data()[order.data()[i]];
            must(label >= 0 && label < outputs, "labels that the network has outputs for");
        }
    } else {
        must(targets && targets->shape(0) == held && int64_t(targets->shape(1)) == outputs, "targets for each sample");
    }
    return {inputs.data(), labels ? labels->data() : nullptr, targets ? targets->data() : nullptr, order.data()};
}

int features_at(const Program& program, int place) {
    must(place >= 0 && size_t(place) <= program.layers.size(), "a place in the network");
    return program.maps[program.map_at(place)].features();
}

// A place of the network and numbers for `count` samples there.
template <class Array>
Tap tap_of(const Program& program, int place, const Array& rows, size_t count) {
    must(rows.shape(0) == count && int(rows.shape(1)) == features_at(program, place), "a row for each sample");
    return {place, const_cast<float*>(rows.data())};
}

std::vector<Tap> taps_of(const Program& program, const std::vector<std::pair<int, Table>>& places, size_t count) {
    std::vector<Tap> taps;
    for (const auto& [place, rows] : places) taps.push_back(tap_of(program, place, rows, count));
    return taps;
}

// Running statistics of batch norms, where there are some.
float* statistics_of(const Program& program, const std::optional<Floats>& given) {
    must(program.statistics == 0 || given, "statistics of batch norms");
    return pointer(given, size_t(program.statistics));
}

using Near = std::tuple<int, ReadTable, ReadTable, ReadWholes, float, float>;

Contrast contrast_of(const Program& program, const Near& given, size_t count) {
    const auto& [place, near, far, rows, strength, temperature] = given;
    const size_t held = near.shape(0);
    tap_of(program, place, near, held), tap_of(program, place, far, held);
    must(rows.size() == count && temperature > 0, "a row for each sample");
    for (size_t i = 0; i < count; ++i)
        must(rows.data()[i] >= 0 && size_t(rows.data()[i]) < held, "samples that are there");
    return {place, near.data(), far.data(), rows.data(), strength, temperature};
}

std::tuple<double, double, double> run(
    Rounds& rounds, Floats weights, std::optional<ReadFloats> start, std::optional<ReadFloats> shift,
    std::optional<Floats> moment, std::optional<Floats> second, ReadTable inputs, std::optional<ReadWholes> labels,
    std::optional<ReadTable> targets, ReadWholes order, ReadWholes ends, ReadFloats rates, int64_t first, float pull,
    float decay, float momentum, bool nesterov, double beta2, double epsilon, int64_t taken, bool decoupled, float clip,
    bool gradient_squares, uint64_t seed, std::optional<std::pair<int, Table>> watch, bool still,
    std::optional<Near> contrast, std::optional<ReadWholes> held, std::optional<Floats> statistics) {
    const Program& program = rounds.program();
    const size_t size = size_t(program.size);
    must(weights.size() == size, "a vector of another size");
    must(ends.size() == rates.size(), "as many rates as batches");
    int64_t before = 0;
    for (size_t i = 0; i < ends.size(); before = ends.data()[i++])
        must(ends.data()[i] > before, "batches that are not empty");
    must(order.size() == size_t(before), "an order that ends with the last batch");
    must(!second || moment, "both moments");
    const Tap watched = watch ? tap_of(program, watch->first, watch->second, order.size()) : Tap{};
    const Contrast term = contrast ? contrast_of(program, *contrast, order.size()) : Contrast{};
    Job job{};
    job.weights = weights.data(), job.start = pointer(start, size), job.shift = pointer(shift, size);
    job.moment = pointer(moment, size), job.second = pointer(second, size);
    job.samples = samples_of(program, inputs, labels, targets, order, true);
    job.ends = ends.data(), job.rates = rates.data(), job.steps = int64_t(ends.size()), job.first = first;
    job.pull = pull, job.decay = decay, job.momentum = momentum, job.clip = clip;
    job.nesterov = nesterov, job.gradient_squares = gradient_squares, job.seed = seed;
    job.beta2 = beta2, job.epsilon = epsilon, job.taken = taken, job.decoupled = decoupled;
    job.watch = watch ? &watched : nullptr, job.still = watch && still;
    job.contrast = contrast ? &term : nullptr;
    job.held = held ? held->data() : nullptr, job.holds = held ? int64_t(held->size()) : 0;
    job.statistics = statistics_of(program, statistics);
    nb::gil_scoped_release release;
    const Done done = rounds.run(job);
    return {done.loss, done.squared_loss, done.gradient_squares};
}

void look(Rounds& rounds, ReadFloats weights, ReadTable inputs, ReadWholes order, std::pair<int, Table> out,
          std::optional<Floats> statistics) {
    const Program& program = rounds.program();
    must(weights.size() == size_t(program.size), "a vector of another size");
    const Samples samples = samples_of(program, inputs, {}, {}, order, false);
    const Tap tap = tap_of(program, out.first, out.second, order.size());
    float* running = statistics_of(program, statistics);
    nb::gil_scoped_release release;
    rounds.look(weights.data(), samples, int64_t(order.size()), tap, running);
}

double trace(Rounds& rounds, ReadFloats weights, ReadTable inputs, std::optional<ReadWholes> labels,
             std::optional<ReadTable> targets, ReadWholes order, std::optional<Floats> statistics) {
    const Program& program = rounds.program();
    must(weights.size() == size_t(program.size), "a vector of another size");
    const Samples samples = samples_of(program, inputs, labels, targets, order, true);
    float* running = statistics_of(program, statistics);
    nb::gil_scoped_release release;
    return rounds.trace(weights.data(), samples, int64_t(order.size()), running);
}

std::pair<double, double> ahead(
    Rounds& rounds, ReadFloats weights, ReadTable inputs, std::optional<ReadWholes> labels,
    std::optional<ReadTable> targets, ReadWholes order, int64_t step, uint64_t seed,
    std::vector<std::pair<int, Table>> places, std::optional<Floats> statistics) {
    const Program& program = rounds.program();
    must(weights.size() == size_t(program.size), "a vector of another size");
    must(order.size() > 0 && order.size() < INT32_MAX, "a batch that is not empty");
    const Samples samples = samples_of(program, inputs, labels, targets, order, true);
    const std::vector<Tap> taps = taps_of(program, places, order.size());
    float* running = statistics_of(program, statistics);
    nb::gil_scoped_release release;
    const Done done = rounds.ahead(weights.data(), samples, int(order.size()), step, seed, taps, running);
    return {done.loss, done.squared_loss};
}

void back(Rounds& rounds, ReadFloats weights, Floats gradient, std::vector<std::pair<int, Table>> more) {
    const Program& program = rounds.program();
    must(weights.size() == size_t(program.size) && gradient.size() == weights.size(), "a vector of another size");
    const std::vector<Tap> taps = taps_of(program, more, size_t(rounds.half_way()));
    nb::gil_scoped_release release;
    rounds.back(weights.data(), taps, gradient.data());
}

float difference(Floats out, ReadFloats a, ReadFloats b) {
    must(a.size() == out.size() && b.size() == out.size(), "a vector of another size");
    nb::gil_scoped_release release;
    return kernels_for("").difference(out.data(), a.data(), b.data(), int64_t(out.size()));
}

void weighted_sum(Floats out, const std::vector<ReadFloats>& vectors, const std::vector<float>& weights) {
    must(!vectors.empty() && vectors.size() == weights.size(), "as many weights as vectors");
    std::vector<const float*> from;
    for (const ReadFloats& vector : vectors) from.push_back(pointer(std::optional(vector), out.size()));
    std::vector<float> room(SPAN * PARTIAL_SUMS);
    nb::gil_scoped_release release;
    kernels_for("").weighted_sum(
        out.data(), from.data(), weights.data(), int64_t(from.size()), int64_t(out.size()), room.data());
}

std::vector<std::vector<float>> lengths(const std::vector<ReadFloats>& vectors) {
    std::vector<std::vector<float>> out;
    for (const ReadFloats& vector : vectors) {
        out.emplace_back((int64_t(vector.size()) + BLOCK - 1) / BLOCK);
        kernels_for("").lengths(vector.data(), int64_t(vector.size()), out.back().data());
    }
    return out;
}

#ifdef POLYRHYTHM_NORMALS
template <class Number>
void standard_normals(
    nb::ndarray<Number, nb::ndim<1>, nb::c_contig, nb::device::cpu> out, uint64_t seed_high, uint64_t seed_low) {
    nb::gil_scoped_release release;
    normals(out.data(), int64_t(out.size()), seed_high, seed_low);
}
#endif

Window window(std::pair<int, int> kernel, std::pair<int, int> stride, std::pair<int, int> padding) {
    must(kernel.first > 0 && kernel.second > 0 && stride.first > 0 && stride.second > 0, "sizes above zero");
    must(padding.first >= 0 && padding.second >= 0, "padding that is not negative");
    return {kernel.first, kernel.second, stride.first, stride.second, padding.first, padding.second};
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Local rounds in C++.";
    nb::set_leak_warnings(false);  // an engine may live as long as the interpreter: in a notebook's variable, in a cache
    m.def("kernels", &kernel_names, "Instruction sets that this processor runs, the best first.");
    m.def(
        "difference", &difference, "out"_a, "a"_a, "b"_a, "out = a - b; gives its Euclidean length, to torch's bits.");
    m.def(
        "weighted_sum", &weighted_sum, "out"_a, "vectors"_a, "weights"_a,
        "The sum of weights[i] * vectors[i], over the tree and to the bits of `polyrhythm.base.vectors.weighted_sum`.");

    m.def("lengths", &lengths, "vectors"_a, "Of each the Euclidean lengths of all 1,024 elements, to torch's bits.");
#ifdef POLYRHYTHM_NORMALS
    const char* drawn = "Fills in standard normal numbers, to the bits of NumPy's generator of that seed.";
    m.def("standard_normals", &standard_normals<float>, "out"_a, "seed_high"_a, "seed_low"_a, drawn);
    m.def("standard_normals", &standard_normals<double>, "out"_a, "seed_high"_a, "seed_low"_a, drawn);
#endif

    nb::class_<Program>(m, "Program", "A network as a list of steps over one flat vector of weights.")
        .def(
            "__init__",
            [](Program* self, int channels, int height, int width, int64_t size, const std::string& loss,
               float smoothing, float weight) {
                must(loss == "cross_entropy" || loss == "binary_cross_entropy", "a known loss");
                const Loss kind = loss == "cross_entropy" ? Loss::cross_entropy : Loss::binary_cross_entropy;
                new (self) Program(channels, height, width, size, {kind, smoothing, weight});
            },
            "channels"_a, "height"_a, "width"_a, "size"_a, "loss"_a, "smoothing"_a, "weight"_a)
        .def(
            "convolution",
            [](Program& self, int64_t weights, int64_t bias, int rows, std::pair<int, int> kernel,
               std::pair<int, int> stride, std::pair<int, int> padding) {
                self.product(weights, bias, rows, window(kernel, stride, padding));
            },
            "weights"_a, "bias"_a, "rows"_a, "kernel"_a, "stride"_a, "padding"_a)
        .def("linear", &Program::linear, "weights"_a, "bias"_a, "rows"_a)
        .def("relu", &Program::relu)
        .def("dropout", &Program::dropout, "share"_a)
        .def(
            "max_pool",
            [](Program& self, std::pair<int, int> kernel, std::pair<int, int> stride, std::pair<int, int> padding) {
                self.pool(Kind::max_pool, window(kernel, stride, padding), true);
            },
            "kernel"_a, "stride"_a, "padding"_a)
        .def(
            "average_pool",
            [](Program& self, std::pair<int, int> kernel, std::pair<int, int> stride, std::pair<int, int> padding,
               bool whole_area) { self.pool(Kind::average_pool, window(kernel, stride, padding), whole_area); },
            "kernel"_a, "stride"_a, "padding"_a, "whole_area"_a)
        .def("embedding", &Program::embedding, "weights"_a, "tokens"_a, "width"_a)
        .def("recurrence", &Program::recurrence, "weights"_a, "bias"_a)
        .def("last", &Program::last)
        .def("from_", &Program::from, "place"_a)
        .def("sum", &Program::sum, "place"_a)
        .def("norm", &Program::norm, "weights"_a, "bias"_a, "groups"_a, "epsilon"_a)
        .def(
            "batch_norm", &Program::batch_norm, "weights"_a, "bias"_a, "epsilon"_a, "momentum"_a, "live"_a)
        .def_prop_ro("outputs", [](const Program& self) { return self.maps.back().features(); });

    m.attr("holds") = true;   // an older build knows no `held`
    m.attr("graphs") = true;  // and no sequences, sums of layers, or norms
    m.attr("batch_norms") = true;
    nb::class_<Rounds>(m, "Rounds", "Room for one thread to run a program's rounds in.")
        .def(
            "__init__",
            [](Rounds* self, const Program& program, const std::string& kernels) {
                new (self) Rounds(program, kernels_for(kernels));
            },
            "program"_a, "kernels"_a = "")
        .def(
            "run", &run, "weights"_a, "start"_a.none(), "shift"_a.none(), "moment"_a.none(), "second"_a.none(),
            "inputs"_a, "labels"_a.none(), "targets"_a.none(), "order"_a, "ends"_a, "rates"_a, "first"_a, "pull"_a,
            "decay"_a, "momentum"_a, "nesterov"_a, "beta2"_a, "epsilon"_a, "taken"_a, "decoupled"_a, "clip"_a,
            "gradient_squares"_a, "seed"_a, "watch"_a.none(), "still"_a, "contrast"_a.none(), "held"_a.none() = nb::none(),
            "statistics"_a.none() = nb::none(),
            "Takes the steps of a round; gives three sums: losses, squared losses, squared norms of gradients.")
        .def(
            "look", &look, "weights"_a, "inputs"_a, "order"_a, "out"_a, "statistics"_a.none() = nb::none(),
            "Fills in what the layers before a place make.")
        .def(
            "trace", &trace, "weights"_a, "inputs"_a, "labels"_a.none(), "targets"_a.none(), "order"_a,
            "statistics"_a.none() = nb::none(), "The sum over samples of the squared norm of each one's own gradient.")
        .def(
            "ahead", &ahead, "weights"_a, "inputs"_a, "labels"_a.none(), "targets"_a.none(), "order"_a, "step"_a,
            "seed"_a, "places"_a, "statistics"_a.none() = nb::none(), "The first half of a batch: fills in places; gives the losses and their squares.")
        .def(
            "back", &back, "weights"_a, "gradient"_a, "more"_a,
            "The second half: the gradient, where some gets added at places.");
}
