"""Modules as people write them, drawn at random, as source: plain networks with something odd in them.

A module is a list of statements over `x`, in `forward` or in a submodule, made of plain layers, of which the native
engine takes many; and of oddities, each of which some engine might overlook: what a context manager, a mode, a hook, a
shared, frozen or reused layer, an operation in place, an overridden method or a bit of Python state makes of them.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

from torch import nn

OUTPUTS = 3
HEADER = """
import collections, contextlib, copy, functools, random
import numpy as np
import torch
import torch.nn.functional as F
import torch.nn.utils.parametrizations as parametrizations
from torch import nn
from torch.utils.checkpoint import checkpoint

class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(context, x): return x.view_as(x)
    @staticmethod
    def backward(context, g): return -g

class OwnLinear(nn.Linear):
    def forward(self, x): return super().forward(x) * 2

class Block(nn.Module):
    def __init__(self, layer): super().__init__(); self.layer = layer
    def forward(self, x): return F.relu(self.layer(x))

class Frozen(Block):
    @torch.no_grad()
    def forward(self, x): return super().forward(x)

class ByMode(Block):
    def forward(self, x): return super().forward(x) if self.training else self.layer(x)

class Called(Block):
    def __call__(self, *given): return super().__call__(*given) + 1

COUNT = [0]
"""


@final
@dataclass
class Drawn:
    """A module as source.

    Args:
        shape: of a sample.
        init, forward: their statements, without indentation.
        methods: other methods.
        oddities: by name.
    """

    shape: tuple[int, ...]
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The class `Net`, which takes no arguments."""
        init = textwrap.indent("\n".join(["super().__init__()", *self.init]), " " * 8)
        forward = textwrap.indent("\n".join([*self.forward, "return x"]), " " * 8)
        methods = "\n".join(textwrap.indent(method, " " * 4) for method in self.methods)
        return (
            f"class Net(nn.Module):\n    def __init__(self):\n{init}\n    def forward(self, x):\n{forward}\n{methods}\n"
        )

    def build(self) -> Callable[[], nn.Module]:
        """Makes the class; each call of it is a new module."""
        space: dict[str, Any] = {"__name__": "drawn_modules"}
        exec(HEADER + self.source, space)
        made: Callable[[], nn.Module] = space["Net"]
        return made


@final
class _Pen:
    """Writes a plain network, and keeps what an oddity needs to know of it."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.images = draw.random() < 0.4
        self.drawn = Drawn(shape=(1, 6, 6) if self.images else (7,))
        self.layers: list[str] = []
        self.width = 7

    def layer(self, made: str) -> str:
        name = f"l{len(self.layers)}"
        self.layers.append(name)
        self.drawn.init.append(f"self.{name} = {made}")
        return name

    def say(self, *statements: str) -> None:
        self.drawn.forward += statements

    def plain(self) -> None:
        """A network of plain layers."""
        draw = self.draw
        if self.images:
            self.convolutions()
        for _ in range(draw.randint(0, 2)):
            wide = draw.choice([4, 5, 9])
            self.linear(wide)
            self.activation()
            self.dropout()
        self.linear(OUTPUTS)

    def convolutions(self) -> None:
        channels, size = 1, 6
        for _ in range(self.draw.randint(0, 2)):
            out, kernel, padding = self.draw.choice([2, 3]), self.draw.choice([1, 3]), self.draw.choice([0, 1])
            if size + 2 * padding < kernel:
                continue
            name = self.layer(
                f"nn.Conv2d({channels}, {out}, {kernel}, padding={padding}, bias={self.draw.random() < 0.8})"
            )
            self.say(f"x = self.{name}(x)")
            self.activation()
            channels, size = out, size + 2 * padding - kernel + 1
            if size >= 2 and self.draw.random() < 0.5:
                self.say(self.draw.choice(["x = F.max_pool2d(x, 2)", "x = F.avg_pool2d(x, 2)"]))
                size //= 2
        self.width = channels * size * size
        self.say(
            self.draw.choice(
                ["x = x.flatten(1)", "x = torch.flatten(x, 1)", "x = x.flatten(1)", "x = x.view(len(x), -1)"]
            )
        )

    def linear(self, wide: int) -> None:
        made = f"nn.Linear({self.width}, {wide}, bias={self.draw.random() < 0.85})"
        if self.draw.random() < 0.1:
            made = self.draw.choice([f"nn.Sequential({made}, nn.Identity())", f"Block({made})"])
        self.say(f"x = self.{self.layer(made)}(x)")
        self.width = wide

    def activation(self) -> None:
        kind = self.draw.random()
        if kind < 0.15:
            self.say(f"x = self.{self.layer('nn.ReLU()')}(x)")
        elif kind < 0.85:
            self.say(
                self.draw.choice(["x = F.relu(x)", "x = torch.relu(x)", "x = x.relu()", "x = F.relu(x, inplace=True)"])
            )

    def dropout(self) -> None:
        if self.draw.random() < 0.15:
            made = self.layer(f"nn.Dropout({self.draw.choice([0.2, 0.5])})")
            self.say(self.draw.choice([f"x = self.{made}(x)", "x = F.dropout(x, 0.3, self.training)"]))

    # What oddities do.

    @property
    def some_layer(self) -> str:
        """A layer with weights, as an expression."""
        made = [line for line in self.drawn.init if "Linear(" in line or "Conv2d(" in line]
        line = self.draw.choice(made)
        name = line.split(" ")[0]
        return f"{name}[0]" if "Sequential" in line else f"{name}.layer" if "Block(" in line else name

    @property
    def seams(self) -> list[int]:
        """The places between two statements."""
        lines = self.drawn.forward
        return [i for i in range(len(lines) + 1) if i == len(lines) or not lines[i].startswith((" ", "except"))]

    def insert(self, statements: list[str]) -> None:
        place = self.draw.choice(self.seams)
        self.drawn.forward[place:place] = statements

    def wrap(self, opening: str) -> None:
        """Puts some statements into a block."""
        first, last = sorted(self.draw.sample(self.seams, 2))
        inside = self.drawn.forward[first:last]
        self.drawn.forward[first:last] = [opening, *(f"    {line}" for line in inside)]

    def add(self, odd: Odd) -> None:
        """Adds something odd."""
        old, new = self.some_layer, ""

        def chosen(alternatives: tuple[str, ...]) -> list[str]:
            lines = self.draw.choice(alternatives).split("\n") if alternatives else []
            return [line.replace("OLD", old).replace("NEW", new).replace("WIDE", str(self.width)) for line in lines]

        for layer in chosen(odd.new):
            new = f"self.{self.layer(layer)}"
        self.drawn.init += chosen(odd.init)
        self.drawn.methods += ["\n".join(lines)] if (lines := chosen(odd.method)) else []
        for opening in chosen(odd.wrap):
            self.wrap(opening)
        self.insert(chosen(odd.insert))
        self.say(*chosen(odd.last))


@final
@dataclass(frozen=True, kw_only=True)
class Odd:
    """Something odd: of each kind one of several pieces of source.

    OLD is a layer of the network, NEW the one that is made, WIDE the number of features at the end.

    Args:
        new: a layer.
        init: when the module is made.
        method: a method.
        wrap: around some statements of forward.
        insert: somewhere among them.
        last: after them.
    """

    new: tuple[str, ...] = ()
    init: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    wrap: tuple[str, ...] = ()
    insert: tuple[str, ...] = ()
    last: tuple[str, ...] = ()


LINEAR = ("nn.Linear(WIDE, WIDE)",)
RUN = ("x = NEW(x)",)

CONTEXTS = {
    "no gradients": Odd(
        wrap=("with torch.no_grad():", "with torch.inference_mode():", "with torch.set_grad_enabled(False):")
    ),
    "no gradients in training": Odd(wrap=("with torch.set_grad_enabled(not self.training):",)),
    "gradients in evaluation": Odd(wrap=("with torch.enable_grad():",)),
    "gradients switched": Odd(insert=("torch.set_grad_enabled(torch.is_grad_enabled())",)),
    "autocast": Odd(wrap=('with torch.autocast("cpu", dtype=torch.bfloat16):',)),
    "harmless context": Odd(wrap=("with contextlib.suppress(ZeroDivisionError):", "with torch.random.fork_rng():")),
    "decorated": Odd(new=("Frozen(nn.Linear(WIDE, WIDE))",), last=RUN),
    "detached": Odd(insert=("x = x.detach()", "x = x.data", "x = x.detach() if self.training else x")),
    "checkpointed": Odd(new=LINEAR, last=("x = checkpoint(NEW, x, use_reentrant=False)",)),
}
MODES = {
    "branch on the mode": Odd(wrap=("if self.training:", "if not self.training:")),
    "block by mode": Odd(new=("ByMode(nn.Linear(WIDE, WIDE))",), last=RUN),
    "outputs by mode": Odd(
        last=(
            *("if not self.training: x = -x", "x = x if self.training else x.flip(1)"),
            *("if self.training: x = x * 1.0", "x = x * (2 if self.training else 1)"),
        )
    ),
    "method by mode": Odd(
        method=("def more(self, x, by=2): return x * by if self.training else x",), insert=("x = self.more(x)",)
    ),
    "branch on gradients": Odd(
        insert=("if not torch.is_grad_enabled(): x = -x", "if torch.is_grad_enabled(): x = F.relu(x)")
    ),
    "branch on tracing": Odd(
        insert=(
            *("if not isinstance(x, torch.Tensor): x = F.relu(x)", "if isinstance(x, torch.Tensor): x = -x"),
            *("if type(x).__name__ == 'Proxy': x = F.relu(x)", "if torch.fx._symbolic_trace.is_fx_tracing(): x = -x"),
        )
    ),
    "train keeps layers in evaluation": Odd(
        new=("nn.Dropout(0.5)",),
        method=("def train(self, mode=True):\n    super().train(mode); NEW.eval(); OLD.eval(); return self",),
        insert=RUN,
    ),
    "train does nothing": Odd(method=("def train(self, mode=True): return self",)),
    "train is always on": Odd(
        method=("def train(self, mode=True): return super().train(True)",), init=("self.train()",)
    ),
    "train notes its mode": Odd(
        init=("self.mode = True",),
        method=("def train(self, mode=True):\n    self.mode = mode\n    return super().train(mode)",),
        last=("x = x if self.mode else -x",),
    ),
    "mode changed in forward": Odd(insert=("self.train()", "self.eval()", "self.train(not self.training)")),
    "dropout layer in evaluation": Odd(new=("nn.Dropout(0.5)",), init=("NEW.eval()",), insert=RUN),
}
DRAWS = {
    "dropout that stays": Odd(insert=("x = F.dropout(x, 0.5)", "x = F.dropout(x, 0.5, training=True)")),
    "dropout the other way": Odd(insert=("x = F.dropout(x, 0.5, training=not self.training)", "x = F.dropout(x, 0.0)")),
    "other dropout": Odd(
        insert=("x = F.alpha_dropout(x, 0.2, self.training)", "x = F.rrelu(x, training=self.training)")
    ),
    "noise": Odd(
        insert=(
            *("x = x + torch.randn_like(x)", "x = x * torch.rand(())", "x = x + torch.randn(x.shape[-1:])"),
            *("if random.random() < 0.5: x = F.relu(x)", "if np.random.rand() < 0.5: x = F.relu(x)"),
            "if torch.rand(()).item() < 0.5: x = F.relu(x)",
        )
    ),
    "seeded inside": Odd(insert=("torch.manual_seed(3); x = F.dropout(x, 0.5, self.training)",)),
    "seeded in a fork": Odd(
        insert=("with torch.random.fork_rng():\n    torch.manual_seed(3); x = F.dropout(x, 0.5, self.training)",)
    ),
    "draws of its own": Odd(
        init=("self.r = random.Random(0)", "self.r = np.random.default_rng(0)"),
        insert=("if self.r.random() < 0.5: x = F.relu(x)",),
    ),
}
HOOKS = {
    "forward hook": Odd(
        init=(
            "OLD.register_forward_hook(lambda m, i, o: o * 2)",
            "OLD.register_forward_pre_hook(lambda m, i: (-i[0],))",
            "OLD.register_forward_hook(lambda m, i, o: o if m.training else -o)",
            "self.register_forward_hook(lambda m, i, o: o + 1)",
        )
    ),
    "backward hook": Odd(
        init=("OLD.register_full_backward_hook(lambda m, i, o: tuple(g if g is None else g * 3 for g in i))",)
    ),
    "gradient hook": Odd(
        init=(
            *("OLD.weight.register_hook(lambda g: g * 0)", "OLD.weight.register_hook(lambda g: g * 2)"),
            *("OLD.weight.register_hook(torch.sign)", "OLD.weight.register_hook(lambda g: None)"),
            "[p.register_hook(lambda g: -g) for p in self.parameters()]",
        )
    ),
    "gradient hook by method": Odd(
        init=("self.share = 0.5; OLD.weight.register_hook(self.halved)",),
        method=("def halved(self, g): return g * self.share",),
    ),
    "hook in forward": Odd(insert=("x.register_hook(lambda g: g * 2) if x.requires_grad else None",)),
}
LAYERS = {
    "frozen": Odd(init=("OLD.requires_grad_(False)", "OLD.weight.requires_grad_(False)")),
    "frozen in forward": Odd(insert=("OLD.requires_grad_(False)",)),
    "unused": Odd(new=("nn.Linear(2, 2)",)),
    "reused": Odd(new=LINEAR, last=("x = NEW(x)\nx = NEW(x.relu())",)),
    "under two names": Odd(new=LINEAR, init=("self.other = NEW",), last=("x = NEW(x)\nx = self.other(x)",)),
    "tied": Odd(
        new=LINEAR,
        init=("self.other = nn.Linear(WIDE, WIDE); self.other.weight = NEW.weight",),
        last=("x = NEW(x)\nx = self.other(x)",),
    ),
    "own layer": Odd(new=("OwnLinear(WIDE, WIDE)", "Called(nn.Linear(WIDE, WIDE))"), last=RUN),
    "functional weights": Odd(
        new=LINEAR,
        last=(
            "x = F.linear(x, NEW.weight, NEW.bias)",
            "x = F.linear(x, F.normalize(NEW.weight))",
            "x = x @ NEW.weight",
        ),
    ),
    "parametrized": Odd(
        new=LINEAR, init=("parametrizations.weight_norm(NEW)", "parametrizations.spectral_norm(NEW)"), last=RUN
    ),
    "norm": Odd(
        new=("nn.BatchNorm1d(WIDE)", "nn.LayerNorm(WIDE)", "nn.BatchNorm1d(WIDE, affine=False)"),
        init=("", "NEW.requires_grad_(False).eval()"),
        last=RUN,
    ),
    "zeros at first": Odd(init=("nn.init.zeros_(OLD.weight)",)),
    "weights changed in forward": Odd(
        insert=(
            *("OLD.weight.data.clamp_(-0.1, 0.1)", "OLD.weight.data.mul_(0.9)"),
            "with torch.no_grad():\n    OLD.weight.mul_(0.9)",
        )
    ),
    "scripted": Odd(new=("torch.jit.trace(nn.Linear(WIDE, WIDE), torch.zeros(2, WIDE))",), last=RUN),
    "compiled": Odd(init=('self.compile(backend="eager")',)),
    "lambda": Odd(init=("self.f = lambda x: F.relu(x)",), insert=("x = self.f(x)",)),
    "forward of an instance": Odd(
        init=("self.forward = self.other",), method=("def other(self, x): return -type(self).forward(self, x)",)
    ),
    "forward of a layer": Odd(init=("OLD.forward = lambda x, f=OLD.forward: f(x) * 2",)),
    "custom gradient": Odd(insert=("x = Reverse.apply(x)", "x = Reverse.apply(x) if self.training else x")),
}
VALUES = {
    "in place": Odd(
        insert=(
            *("x.add_(1)", "x.mul_(-1)", "x += 1", "x[:, 0] = 0", "F.relu_(x)", "x.relu_()", "x.zero_()"),
            "y = x\nx = F.relu(x, inplace=True)\nx = x + y",
        )
    ),
    "residual": Odd(insert=("x = x + F.relu(x)",)),
    "scaled": Odd(
        insert=("x = x * 2", "x = -x", "x = 1 - x", "x = x ** 2", "x = torch.tanh(x)", "x = F.softmax(x, -1)")
    ),
    "mixes samples": Odd(insert=("x = x - x.mean(0)", "x = x.flip(0)", "x = x + x[:1]", "x = x.sort(0).values")),
    "branch on data": Odd(
        insert=(
            *("if x.sum() > 0: x = -x", "if len(x) > 4: x = F.relu(x)", "if x.shape[0] % 2: x = -x"),
            "try:\n    if x.mean() > 0: x = -x\nexcept Exception: pass",
        )
    ),
    "branch on weights": Odd(
        init=("self.held = [OLD.weight]",),
        insert=("if OLD.weight.sum() > 0: x = F.relu(x)", "if self.held[0].sum() > 0: x = F.relu(x)"),
    ),
}
STATE = {
    "counts": Odd(
        init=("self.n = 0",),
        insert=(
            *("self.n += 1\nif self.n > 2: x = F.relu(x)", "self.n += 1\nx = x / self.n", "self.n += self.training"),
            "self.n += 1\nif self.n % 2: x = -x",
        ),
    ),
    "counts in a list": Odd(init=("self.n = []",), insert=("self.n.append(1)\nif len(self.n) > 3: x = F.relu(x)",)),
    "keeps activations": Odd(insert=("self.h = x", "self.kept = {'h': x}", "self.h = x.detach()")),
    "carries state": Odd(init=("self.h = None",), insert=("x = x if self.h is None else F.relu(x)\nself.h = x",)),
    "first call": Odd(
        init=("self.c = None", "self.register_buffer('c', None)"),
        insert=("if self.c is None: self.c = x.detach().mean()\nx = x - self.c",),
    ),
    "buffer": Odd(init=("self.register_buffer('b', torch.full((1,), 0.5))",), insert=("x = x * self.b",)),
    "buffer that moves": Odd(
        init=("self.register_buffer('b', torch.zeros(()))", "self.register_buffer('b', torch.zeros(()), False)"),
        insert=("self.b += self.training\nx = x / (1 + self.b)",),
    ),
}
ODDITIES = CONTEXTS | MODES | DRAWS | HOOKS | LAYERS | VALUES | STATE


def drawn(number: int) -> Drawn:
    """The module of that number: always the same. One in six has nothing odd, one in four two things."""
    draw = random.Random(number)
    pen = _Pen(draw)
    pen.plain()
    for name in draw.sample(sorted(ODDITIES), draw.choices([0, 1, 2], [2, 7, 3])[0]):
        pen.add(ODDITIES[name])
        pen.drawn.oddities.append(name)
    return pen.drawn
