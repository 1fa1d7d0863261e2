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

#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ReadFloats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
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

std::tuple<double, double, double> run(
    Rounds& rounds, Floats weights, std::optional<ReadFloats> start,
    std::optional<ReadFloats> shift, std::optional<Floats> moment, ReadTable inputs, std::optional<ReadWholes> labels,
    std::optional<ReadTable> targets, ReadWholes order, ReadWholes ends, ReadFloats rates, float pull, float decay,
    float momentum, bool nesterov, float clip, bool gradient_squares, uint64_t seed) {
    const Program& program = rounds.program();
    const size_t size = size_t(program.size), held = inputs.shape(0);
    const int64_t outputs = program.maps.back().features();
    must(weights.size() == size, "a vector of another size");
    must(inputs.shape(1) == size_t(program.maps.front().features()), "samples of another shape");
    must(ends.size() == rates.size(), "as many rates as batches");
    int64_t before = 0;
    for (size_t i = 0; i < ends.size(); before = ends.data()[i++])
        must(ends.data()[i] > before, "batches that are not empty");
    must(order.size() == size_t(before), "an order that ends with the last batch");
    for (size_t i = 0; i < order.size(); ++i)
        must(order.data()[i] >= 0 && size_t(order.data()[i]) < held, "samples that are there");
    if (program.objective.loss == Loss::cross_entropy) {
        must(labels && labels->size() == held, "a label for each sample");
        for (size_t i = 0; i < order.size(); ++i) {
            const int64_t label = labels->data()[order.data()[i]];
            must(label >= 0 && label < outputs, "labels that the network has outputs for");
        }
    } else {
        must(targets && targets->shape(0) == held && int64_t(targets->shape(1)) == outputs, "targets for each sample");
    }
    const Job job{
        weights.data(),
        pointer(start, size),
        pointer(shift, size),
        pointer(moment, size),
        inputs.data(),
        labels ? labels->data() : nullptr,
        targets ? targets->data() : nullptr,
        order.data(),
        ends.data(),
        rates.data(),
        long(ends.size()),
        pull,
        decay,
        momentum,
        clip,
        nesterov,
        gradient_squares,
        seed,
    };
    nb::gil_scoped_release release;
    const Done done = rounds.run(job);
    return {done.loss, done.squared_loss, done.gradient_squares};
}

void weighted_sum(Floats out, const std::vector<ReadFloats>& vectors, const std::vector<float>& weights) {
    must(!vectors.empty() && vectors.size() == weights.size(), "as many weights as vectors");
    std::vector<const float*> from;
    for (const ReadFloats& vector : vectors) from.push_back(pointer(std::optional(vector), out.size()));
    std::vector<float> room(SPAN * PARTIAL_SUMS);
    nb::gil_scoped_release release;
    kernels_for("").weighted_sum(
        out.data(), from.data(), weights.data(), long(from.size()), long(out.size()), room.data());
}

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
        "weighted_sum", &weighted_sum, "out"_a, "vectors"_a, "weights"_a,
        "The sum of weights[i] * vectors[i], over the tree and to the bits of `polyrhythm.vectors.weighted_sum`.");

    nb::class_<Program>(m, "Program", "A network as a list of steps over one flat vector of weights.")
        .def(
            "__init__",
            [](Program* self, int channels, int height, int width, long size, const std::string& loss, float smoothing,
               float weight) {
                must(loss == "cross_entropy" || loss == "binary_cross_entropy", "a known loss");
                const Loss kind = loss == "cross_entropy" ? Loss::cross_entropy : Loss::binary_cross_entropy;
                new (self) Program(channels, height, width, size, {kind, smoothing, weight});
            },
            "channels"_a, "height"_a, "width"_a, "size"_a, "loss"_a, "smoothing"_a, "weight"_a)
        .def(
            "convolution",
            [](Program& self, long weights, long bias, int rows, std::pair<int, int> kernel, std::pair<int, int> stride,
               std::pair<int, int> padding) {
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
        .def_prop_ro("outputs", [](const Program& self) { return self.maps.back().features(); });

    nb::class_<Rounds>(m, "Rounds", "Room for one thread to run a program's rounds in.")
        .def(
            "__init__",
            [](Rounds* self, const Program& program, const std::string& kernels) {
                new (self) Rounds(program, kernels_for(kernels));
            },
            "program"_a, "kernels"_a = "")
        .def(
            "run", &run, "weights"_a, "start"_a.none(), "shift"_a.none(), "moment"_a.none(), "inputs"_a,
            "labels"_a.none(), "targets"_a.none(), "order"_a, "ends"_a, "rates"_a, "pull"_a, "decay"_a, "momentum"_a,
            "nesterov"_a, "clip"_a, "gradient_squares"_a, "seed"_a,
            "Takes the steps of a round; gives three sums: losses, squared losses, squared norms of gradients.");
}
