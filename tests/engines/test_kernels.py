"""The C++ itself: compiled with sanitisers and held to plain loops, which mutants of the kernels do not survive."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

import polyrhythm.engines.native

SOURCE = Path(polyrhythm.engines.native.__path__[0])
CHECK = Path(__file__).with_name("check.cpp")
X86 = platform.machine() in ("x86_64", "AMD64")
SQUARES = "-DPOLYRHYTHM_SQUARES={}"
SETS = {"plain": []} | (
    {
        "avx2": ["-mavx2", "-mfma"],
        "avx512": ["-mavx2", "-mfma", *(f"-mavx512{s}" for s in ("f", "bw", "cd", "dq", "vl"))],
    }
    if X86
    else {}
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to compile the kernels with"),
]


def build(folder: Path, sets: dict[str, list[str]], *options: str, source: Path = SOURCE) -> Path:
    """Compiles the check and the kernels for some instruction sets."""
    common = ["g++", "-std=c++17", "-ffp-contract=off", "-fno-math-errno", f"-I{source}", *options]
    objects = []
    for name, flags in sets.items():
        objects.append(str(folder / f"{name}.o"))
        kernels = [str(source / "kernels.cpp"), f"-DPOLYRHYTHM_KERNELS={name}"]
        subprocess.run([*common, *flags, *kernels, "-c", "-o", objects[-1]], check=True)
    define = ["-DPOLYRHYTHM_X86"] if len(sets) > 1 else []
    program = folder / "check"
    names = (
        "batch_norms.cpp",
        "norm_passes.cpp",
        "plan.cpp",
        "program.cpp",
        "residuals.cpp",
        "rounds.cpp",
        "sequences.cpp",
    )
    sources = [*(str(source / name) for name in names), str(CHECK)]
    subprocess.run([*common, *define, *sources, *objects, "-o", str(program)], check=True)
    return program


def test_every_kernel_is_its_definition_and_touches_only_what_it_may(tmp_path: Path) -> None:
    sanitised = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    done = subprocess.run([build(tmp_path, SETS, *sanitised)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_convolutions_in_squares_are_their_definition(tmp_path: Path) -> None:
    """All that can be cut into squares, of one register at a time and of three."""
    for together in (1, 3):
        folder = tmp_path / str(together)
        folder.mkdir()
        sanitised = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", SQUARES.format(together))
        done = subprocess.run([build(folder, SETS, *sanitised)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# file, a text in it, what a mutant has instead.
MUTANTS = {
    "no bias": ("kernels.cpp", "all(bias ? bias[row + r] : 0.0f)", "all(0.0f)"),
    "inputs' gradient not added up": ("kernels.cpp", "store(here, load(here) + sum[r][c]);", "store(here, sum[r][c]);"),
    "eight squares forgotten": ("kernels.cpp", "sum += both[1] * both[1];", ""),
    "lanes lost": ("kernels.cpp", "(four[0] + four[2]) + (four[1] + four[3])", "four[0] + four[2]"),
    "idle lanes learn": ("kernels.cpp", "for (int b = count; b < LANES; ++b)", "for (int b = LANES; b < LANES; ++b)"),
    "relu lets through": ("kernels.cpp", "where(~(load(values + i) <= V{}), load(gradient + i))", "load(gradient + i)"),
    "any first place": ("kernels.cpp", "open & ((v == most) | (v != v))", "open"),
    "average is a sum": ("kernels.cpp", "sum * all(p.share[w])", "sum"),
    "one block's inputs": ("kernels.cpp", "samples + int64_t(first) * pitch", "samples"),
    "rows turned wrongly": ("kernels.cpp", "__builtin_shufflevector(b, d, 0, 1, 4, 5)", "b"),
    "tail forgotten": ("kernels.cpp", "std::memcpy(to, &sum[r][c], 4 * left);", "(void)to;"),
    "another tree": (
        "kernels.cpp",
        "(a[k] * p + b[k] * q) + (c[k] * r + d[k] * s)",
        "a[k] * p + b[k] * q + c[k] * r + d[k] * s",
    ),
    "the end of a sum lost": ("kernels.cpp", "while (top > 1) join();", "while (top > 2) join();"),
    "stepped too early": (
        "rounds.cpp",
        "if (din) input_gradient(layer, int(i), pass.weights, count, several);\n",
        "\n",
    ),
    "gradients of the last batch stay": ("rounds.cpp", "std::fill_n(din, size, 0.0f)", "std::fill_n(din, 0, 0.0f)"),
    "squares of sums": ("kernels.cpp", "sum += double(lane[b]) * lane[b];", "sum += lane[b];"),
    "no squares of biases": ("rounds.cpp", "if (layer.bias >= 0) use.sum += k_.bias_squares(p, dout, blocks);", ""),
    "one block's squares": (
        "kernels.cpp",
        "weights_by_lane(p, in, dout, n, n + 1,",
        "weights_by_lane(p, in, dout, 0, 1,",
    ),
    "a contrast to one model": ("kernels.cpp", "by_far[b] = float(slope / to_far);", "by_far[b] = 0;"),
    "longer representations": ("kernels.cpp", "by_z[b] = zz[b] > 0 ?", "by_z[b] = false ?"),
    "a contrast of what came later": (
        "rounds.cpp",
        "k_.contrast(kept_.data() + block",
        "k_.contrast(values_[map] + block",
    ),
    "a term at another place": (
        "rounds.cpp",
        "if (tap.place == int(place)) give",
        "if (tap.place + 1 == int(place)) give",
    ),
    "moments that began as they are": ("rounds.cpp", "job.taken + step + 1", "1000 + step"),
    "no root": ("kernels.cpp", "__builtin_sqrtf(s[i]) / u.root", "s[i] / u.root"),
    "decay of the gradient": ("rounds.cpp", "if (job.decoupled) u.decay = 0, ", "if (job.decoupled) "),
    "the same samples again": (
        "rounds.cpp",
        "order[first + lane] * map.features() : blank_",
        "order[lane] * map.features() : blank_",
    ),
    "a remainder of another": ("plan.cpp", "x % w.across * each", "x % w.across"),
    "a border left out too early": ("plan.cpp", "w.above + in.height - row", "w.above + in.height - 1 - row"),
    "neighbours look alike": ("plan.cpp", "w.beside - last * w.across", "w.beside - first * w.across"),
    "one channel after another": ("convolutions.h", "p.tap[tap] + row * channel", "p.tap[tap]"),
    "a gradient in place of another": (
        "rounds.cpp",
        "k_.add(beside_, there, size);",
        "std::copy_n(beside_, size, there);",
    ),
    "one side of a sum": ("residuals.cpp", "if (!numbers[to]) return;", "if (!numbers[to] || more) return;"),
    "no mean of slopes": ("norms.h", "(slope - mean_shift[part])", "slope"),
    "a norm of one channel": ("norms.h", "q.channels / q.groups * q.height * q.width", "q.height * q.width"),
    "idle lanes have moments": (
        "batch_norms.h",
        "sum[0] += where(used, load(in + i)); });",
        "sum[0] += load(in + i); });",
    ),
    "idle lanes apart from the mean": ("batch_norms.h", "where(used, load(in + i) - mean)", "load(in + i) - mean"),
    "idle lanes have gradients": ("batch_norms.h", "where(used, f(in +", "(f(in +"),
    "every fourth pixel": ("batch_norms.h", "(sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i])", "sum[0][i]"),
    "a row's last pixels lost": ("batch_norms.h", "for (; x < q.width; ++x) f", "for (; x < 0; ++x) f"),
    "half of the lanes": ("batch_norms.h", "sum[lane] += sum[lane + half]", "sum[lane] += 0"),
    "moments of a sample": ("batch_norms.h", "double((q.blocks - 1) * LANES + q.last)", "double(LANES)"),
    "no way back through the mean": ("batch_norms.cpp", "live ? -factor * of_shift / numbers : 0", "0"),
    "no way back through the variance": (
        "batch_norms.cpp",
        "live ? -factor * channel.by * of_scale / numbers : 0",
        "0",
    ),
    "frozen norms by the batch": (
        "batch_norms.cpp",
        "layer.live && !pass.still;\n    const double",
        "!pass.still;\n    const double",
    ),
    "biased running variances": ("batch_norms.cpp", "moments[1] * numbers / (numbers - 1)", "moments[1]"),
    "running means that stay": ("batch_norms.cpp", "moves * moments[0] + (1 - moves) * mean[c]", "mean[c]"),
    "one block's squares of norms": ("batch_norms.cpp", "in + int64_t(n) * channel.in_block", "in"),
    "no relu after a norm": ("batch_norms.h", "where(keep | ~(number <= V{}), number)", "number"),
    "relu after a norm lets through": ("batch_norms.h", "RELU ? where(~(normed(q, in) <= V{}), dout) : dout", "dout"),
    "one number has a variance": ("batch_norms.cpp", "if (live && numbers < 2)", "if (live && numbers < 1)"),
    "another's border": ("rounds.cpp", "y * window.down - window.above, x", "y * window.down - in.above, x"),
    "cells forget nothing": (
        "recurrences.h",
        "fused(forget, old, input * fresh)",
        "fused(all(1.0f), old, input * fresh)",
    ),
    "states of the next layer alone": (
        "recurrences.h",
        "if (!end)\n            row_product(",
        "if (false)\n            row_product(",
    ),
    "no way back through cells": ("recurrences.h", "end ? V{} : load(carried)", "V{}"),
    "another gate's units": ("recurrences.h", "(at / part) * across.each", "(at / part) * part"),
    "another gate's units on the way back": (
        "recurrences.h",
        "(int64_t(place) * down.each + k)",
        "(int64_t(place) * deep + k)",
    ),
    "the last rows alone": ("recurrences.h", "added_to<R, C>(to, taps, piece, sum);", ""),
    "tangents of small numbers alone": ("lanes.h", "fused(p * z, x, x)", "x"),
    "a state's own gates": ("sequences.cpp", "(int64_t(recurs) * count + first)", "first"),
    "one sample's rows": ("sequences.cpp", "steps * count / every, gradients_", "steps, gradients_"),
    "one token's vector": (
        "sequences.cpp",
        "float* vector = gradient + token * out.channels;",
        "float* vector = gradient;",
    ),
    "the first state": (
        "sequences.cpp",
        "*from = values_[layer.in] + int64_t(in.width - 1)",
        "*from = values_[layer.in] + int64_t(0)",
    ),
    "weights are not turned round": ("squares.h", "other[SIDE] = {3, 1, 2, 0}", "other[SIDE] = {0, 1, 2, 3}"),
    "idle lanes keep others' numbers": (
        "squares.h",
        "where(use, bias ? number + all(bias[row]) : number)",
        "(bias ? number + all(bias[row]) : number)",
    ),
    "squares before are forgotten": ("squares.h", "if (more) added_to<R, C>(to, q.channels, piece, sum);", ""),
    "half a weight": ("squares.h", "out[1] = (outer + g[1]) * 0.5f", "out[1] = outer * 0.5f"),
    "what is beside the image is looked at": ("plan.cpp", "x >= out.width ? -1", "x > out.width ? -1"),
    "a ReLU lets all back": (
        "norms.h",
        "where(~((SUM ? load(sum + o) : unit * scaled + shifted) <= V{}), slope)",
        "slope",
    ),
    "what is added learns nothing": ("norms.h", "if (SUM) store(other, slope);", ""),
    "a sum of one": ("norms.h", "if (SUM) v += load(other + r * q.other_row + at);", ""),
    "a number between that nobody made": ("norm_passes.cpp", "if (between(tap.place)) return 0;", "continue;"),
    "a norm that is read twice": (
        "norm_passes.cpp",
        "all[last].kind == Kind::sum && !all[last].more",
        "all[last].kind == Kind::sum",
    ),
    "a square's gradient alone": ("squares.h", "MORE ? load(to) + number : number", "number"),
    "pixels that no window looks at": (
        "plan.cpp",
        "whole_inputs = w.height >= w.down && w.width >= w.across",
        "whole_inputs = true",
    ),
    "the border of another": (
        "plan.cpp",
        "in.inside(0, y - w.above, x - w.beside)), in_spot_",
        "in.padded(0, y, x)), in_spot_",
    ),
    "no halo": ("program.h", "padded(c, y + above, x + beside)", "padded(c, y, x)"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file in (*SOURCE.glob("*.cpp"), *SOURCE.glob("*.h")):
        shutil.copy(file, source)
    name, text, other = MUTANTS[mutant]
    original = (source / name).read_text()
    assert original.count(text) == 1
    (source / name).write_text(original.replace(text, other))
    squares = [SQUARES.format(1)] if name == "squares.h" or "image is looked" in mutant else []
    program = build(tmp_path, {"plain": []}, "-O2", *squares, source=source)
    assert subprocess.run([program], capture_output=True, check=False).returncode != 0
