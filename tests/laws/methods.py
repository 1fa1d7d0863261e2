"""Each method's algorithm, written out by hand from its paper: one loop over versions and clients, no mechanism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from polyrhythm.base.settings import Settings
from polyrhythm.methods.mechanism import Model

from .hand import Term, buffers_of, flat, loaded, optimiser_of, train
from .trials import Trial
from .world import near, play

EXACT = 1e-10  # double precision, so that only a difference in meaning shows


@final
@dataclass(frozen=True, kw_only=True)
class Trained:
    """A visit by hand: who, with how many samples, w_K - w_0 [P], steps, and the trained module."""

    client: int
    num_samples: int
    update: Tensor
    steps: int
    module: nn.Module


class Method:
    """FedAvg by samples; the others override what they do differently."""

    factor = 1.0
    """Of every gradient."""

    def shift(self, client: int) -> Tensor | None:
        """What is added to every gradient of a client, [P]."""
        return None

    def term(self, client: int, received: nn.Module) -> Term | None:
        """What is added to the loss of every batch of a client."""
        return None

    def step(self, visits: Sequence[Trained]) -> Tensor:
        """What is added to the global weights, [P]; the method may learn from the visits."""
        return by_samples(visits)


def by_samples(visits: Sequence[Trained]) -> Tensor:
    total = sum(v.num_samples for v in visits)
    return torch.stack([v.update * v.num_samples / total for v in visits]).sum(0)


def plainly(visits: Sequence[Trained]) -> Tensor:
    return torch.stack([v.update for v in visits]).mean(0)


def follow(trial: Trial, method: Method, *parts: Settings, versions: int = 4) -> None:
    """Asserts that the recipe gives the method's weights and buffers at every version."""
    recipe, federation = trial.recipe(*parts), trial.federation
    story = play(recipe, federation, versions=versions)
    layout, shards = federation.engine().layout, federation.shards()
    weights, buffers = story.states[0].weights, story.states[0].buffers
    for version, state in enumerate(story.states[1:]):
        visits = []
        for dispatch, assignment in story.assignments.items():
            if assignment.version != version:
                continue
            client, batches = assignment.client, story.batches[dispatch]
            received, module = (loaded(federation, layout, Model(weights=weights, buffers=buffers)) for _ in range(2))
            train(
                module,
                layout,
                shards[client],
                batches,
                optimiser_of(recipe.optimiser, module),
                clip=recipe.optimiser.clip,
                shift=method.shift(client),
                term=method.term(client, received.eval()),
                factor=method.factor,
            )
            update = flat(module, layout) - weights
            held = len(shards[client])
            visits.append(Trained(client=client, num_samples=held, update=update, steps=len(batches), module=module))
        weights = weights + method.step(visits)
        buffers = _by_samples(visits, [buffers_of(v.module, layout) for v in visits])
        assert near(state.weights, weights, EXACT)
        assert all(near(a, b, EXACT) for a, b in zip(state.buffers, buffers, strict=True))


def _by_samples(visits: Sequence[Trained], many: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    total = sum(v.num_samples for v in visits)
    combined = []
    for tensors in zip(*many, strict=True):
        if tensors[0].is_floating_point():
            combined.append(
                torch.stack([t * v.num_samples / total for t, v in zip(tensors, visits, strict=True)]).sum(0)
            )
        else:
            combined.append(torch.stack(tensors).amax(0))
    return tuple(combined)


def squared_distance(module: nn.Module, received: nn.Module) -> Tensor:
    pairs = zip(module.parameters(), received.parameters(), strict=True)
    return torch.stack([(a - b.detach()).square().sum() for a, b in pairs]).sum()


def path(trial: Trial, steps: int) -> float:
    """lr * a_i: K * lr without momentum, else FedNova's closed form for heavy-ball momentum."""
    rho, lr = trial.common.get("momentum", 0.0), trial.common["lr"]
    return lr * (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


@final
class FedProx(Method):
    def __init__(self, mu: float) -> None:
        self.mu = mu

    def term(self, client: int, received: nn.Module) -> Term:
        return lambda module, inputs, outputs: self.mu / 2 * squared_distance(module, received)


@final
class Scaffold(Method):
    """Option II, N clients; c_i = 0 until a client trains."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        zeros = trial.federation.engine().layout.zeros()
        self.control, self.controls = zeros, defaultdict[int, Tensor](lambda: zeros)

    def shift(self, client: int) -> Tensor:
        return self.control - self.controls[client]

    def step(self, visits: Sequence[Trained]) -> Tensor:
        changes = []
        for visit in visits:
            before = self.controls[visit.client]
            after = before - self.control - visit.update / path(self.trial, visit.steps)
            self.controls[visit.client] = after
            changes.append(after - before)
        self.control = self.control + torch.stack(changes).sum(0) / len(self.trial.federation.sizes)
        return plainly(visits)


@final
class FedCM(Method):
    """m is the mean direction of the last version, a mean over clients of equal weight."""

    def __init__(self, trial: Trial, alpha: float) -> None:
        self.trial, self.factor, self.m = trial, alpha, trial.federation.engine().layout.zeros()

    def shift(self, client: int) -> Tensor:
        return (1 - self.factor) * self.m

    def step(self, visits: Sequence[Trained]) -> Tensor:
        mean = plainly(visits)
        self.m = -mean / (sum(path(self.trial, v.steps) for v in visits) / len(visits))
        return mean


@final
class VrlSgd(Method):
    """With participants only, as the mechanism states."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        zeros = trial.federation.engine().layout.zeros()
        self.drift = defaultdict[int, Tensor](lambda: zeros)

    def shift(self, client: int) -> Tensor:
        return -self.drift[client]

    def step(self, visits: Sequence[Trained]) -> Tensor:
        mean = plainly(visits)
        for visit in visits:
            gap = (mean - visit.update) / path(self.trial, visit.steps)
            self.drift[visit.client] = self.drift[visit.client] + gap
        return mean


@final
class FedDyn(Method):
    def __init__(self, trial: Trial, alpha: float) -> None:
        self.federation, self.alpha = trial.federation, alpha
        zeros = self.federation.engine().layout.zeros()
        self.h, self.duals = zeros, defaultdict[int, Tensor](lambda: zeros)

    def term(self, client: int, received: nn.Module) -> Term:
        layout = self.federation.engine().layout
        dual = layout.named(self.duals[client])

        def term(module: nn.Module, inputs: Tensor, outputs: Tensor) -> Tensor:
            product = torch.stack([(dual[name] * p).sum() for name, p in module.named_parameters()]).sum()
            return self.alpha / 2 * squared_distance(module, received) - product

        return term

    def step(self, visits: Sequence[Trained]) -> Tensor:
        for visit in visits:
            self.duals[visit.client] = self.duals[visit.client] - self.alpha * visit.update
            self.h = self.h - self.alpha / len(self.federation.sizes) * visit.update
        return plainly(visits) - self.h / self.alpha


@final
class Moon(Method):
    """On the logits."""

    def __init__(self, mu: float, temperature: float) -> None:
        self.mu, self.temperature = mu, temperature
        self.last: dict[int, nn.Module] = {}

    def term(self, client: int, received: nn.Module) -> Term | None:
        if client not in self.last:
            return None
        last = self.last[client].eval()

        def term(module: nn.Module, inputs: Tensor, outputs: Tensor) -> Tensor:
            near, far = (torch.exp(_cosine(outputs, frozen(inputs)) / self.temperature) for frozen in (received, last))
            return self.mu * -torch.log(near / (near + far)).mean()

        return term

    def step(self, visits: Sequence[Trained]) -> Tensor:
        self.last |= {visit.client: visit.module for visit in visits}
        return by_samples(visits)


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(one, dim=1) * torch.linalg.vector_norm(other.detach(), dim=1)
    return (one * other.detach()).sum(1) / lengths


@final
class FedNova(Method):
    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def step(self, visits: Sequence[Trained]) -> Tensor:
        total = sum(v.num_samples for v in visits)
        paths = [path(self.trial, v.steps) for v in visits]
        effective = sum(p * v.num_samples / total for p, v in zip(paths, visits, strict=True))
        directions = [v.update / p * v.num_samples / total for p, v in zip(paths, visits, strict=True)]
        return effective * torch.stack(directions).sum(0)
