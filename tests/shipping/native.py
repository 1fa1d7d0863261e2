"""Tries the compiled extension of an installation, on every instruction set that this processor has.

    python tests/shipping/native.py     # the interpreter of the installation; needs NumPy, and no PyTorch

A step of softmax regression, a difference and a weighted sum must be what NumPy makes of them. This is what a wheel is
put to where it was built, on any system and any Python that it is for. Says what is wrong, and then exits with 1.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from polyrhythm.base.compiled import extension
from polyrhythm.cli.version import version

_SAMPLES, _INPUTS, _CLASSES, _RATE = 21, 5, 3, 0.5  # more samples than lanes, and no multiple of them


def faults(native: Any) -> list[str]:
    """What is not as NumPy has it, in words."""
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 1003)).astype(np.float32)
    out = np.empty_like(a)
    found = []
    length = native.difference(out=out, a=a, b=b)
    if not (out == a - b).all() or not np.isclose(length, np.linalg.norm(a - b)):
        found.append("a difference")
    native.weighted_sum(out=out, vectors=[a, b], weights=[0.25, 0.75])
    if not np.allclose(out, 0.25 * a + 0.75 * b, atol=1e-6):
        found.append("a weighted sum")
    return found + [f"a step with {kernels}" for kernels in native.kernels() if not _step_is_right(native, kernels)]


def _step_is_right(native: Any, kernels: str) -> bool:
    """One step of gradient descent, against the formula of softmax regression."""
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(_SAMPLES, _INPUTS)).astype(np.float32)
    labels = generator.integers(_CLASSES, size=_SAMPLES)
    size = _CLASSES * _INPUTS + _CLASSES
    start = np.zeros(-(-size // 16) * 16, dtype=np.float32)
    start[:size] = generator.normal(size=size)
    matrix, bias = start[: _CLASSES * _INPUTS].reshape(_CLASSES, _INPUTS), start[_CLASSES * _INPUTS : size]
    logits = inputs @ matrix.T + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(_SAMPLES), labels]).sum()
    slope = (shares - np.eye(_CLASSES)[labels]) / _SAMPLES
    gradient = np.concatenate([(slope.T @ inputs).ravel(), slope.sum(axis=0)])

    program = native.Program(_INPUTS, 1, 1, len(start), "cross_entropy", 0.0, 1.0)
    program.linear(0, _CLASSES * _INPUTS, _CLASSES)
    weights = start.copy()
    sums = native.Rounds(program, kernels).run(
        weights=weights,
        **dict.fromkeys(("start", "shift", "moment", "second", "targets", "watch", "contrast")),
        **dict.fromkeys(("pull", "decay", "momentum", "beta2", "epsilon", "clip"), 0.0),
        **dict.fromkeys(("nesterov", "decoupled", "still"), False),
        **dict.fromkeys(("first", "taken", "seed"), 0),
        inputs=inputs,
        labels=labels,
        order=np.arange(_SAMPLES),
        ends=np.array([_SAMPLES]),
        rates=np.array([_RATE], dtype=np.float32),
        gradient_squares=True,
    )
    stepped = np.allclose(weights[:size], start[:size] - _RATE * gradient, atol=1e-5)
    return bool(stepped and np.allclose(sums[::2], [loss, (gradient**2).sum()], rtol=1e-4))


def main() -> int:
    native = extension()
    print(f"Python {sys.version.split()[0]}\n{version()}")
    if native is None:
        print("there is no native engine here")
        return 1
    print(f"{native.__file__}: {', '.join(native.kernels())}")
    for fault in (wrong := faults(native)):
        print(f"{fault} is not what NumPy makes of it")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
