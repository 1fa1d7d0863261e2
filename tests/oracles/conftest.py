"""Small problems whose gradients are known, and a way to run a recipe on them through the real cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyrhythm.base.messages import Assignment, Report
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.server_state import ServerState
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.fleet import Fleet, FleetState
from polyrhythm.methods.mechanism import Model, Release, Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.tally import Tally
from polyrhythm.models.tasks import Task
from polyrhythm.simulation.simulator import InlineDriver


@final
class Held:
    """Samples of one client, and a note of which were asked for: `asked` has one entry per batch."""

    augmented = False

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, positions: np.ndarray, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        self.asked.append([int(p) for p in positions])
        return self.inputs[positions], self.targets[positions]


@pytest.fixture
def held() -> type[Held]:
    return Held


@dataclass(frozen=True, kw_only=True)
class Minimise(Task):
    """The module's outputs [B] are the losses."""

    name: ClassVar[str] = "minimise"

    @property
    def headline(self) -> str:
        return "loss"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        return torch.zeros_like(outputs)

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        pass

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {}

    def _metrics(self, tally: Tally) -> dict[str, float]:
        return {}


@final
class Bowl(nn.Module):
    """Loss of a sample (a, b, s): sum over d of a/2 * (w - b)^2 + s * w, so its gradient is a * (w - b) + s."""

    def __init__(self, start: Sequence[float]) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, samples: Tensor) -> Tensor:
        curvature, optimum, slope = samples.chunk(3, dim=1)
        return (curvature / 2 * (self.point - optimum) ** 2 + slope * self.point).sum(dim=1)


@final
@dataclass(frozen=True)
class Client:
    """A client of the bowl problem: `copies` equal samples, so that batch=1 takes `copies` steps per epoch.

    Args:
        curvature, optimum, slope: [d], see `Bowl`.
        copies: n_i.
    """

    curvature: np.ndarray
    optimum: np.ndarray
    slope: np.ndarray
    copies: int

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        gradient: np.ndarray = self.curvature * (weights - self.optimum) + self.slope
        return gradient

    def held(self) -> Held:
        row = torch.from_numpy(np.concatenate([self.curvature, self.optimum, self.slope]))
        return Held(row.repeat(self.copies, 1), torch.zeros(self.copies))


@final
@dataclass(frozen=True)
class Version:
    """What a test may look at after one release. Weights [d] are without padding."""

    state: ServerState
    release: Release
    cohort: list[int]
    weights: np.ndarray
    clients: dict[int, ClientState]
    size: int

    def unpadded(self, vector: Tensor) -> np.ndarray:
        assert not vector[self.size :].any(), "padding must stay zero"
        return vector[: self.size].numpy()

    def client(self, client: int, part: str, name: str) -> np.ndarray:
        return self.unpadded(self.clients[client].parts[part][name])

    def server(self, part: str, name: str) -> np.ndarray:
        return self.unpadded(self.state.parts[part][name])


Bowls = Callable[..., list[Version]]


@pytest.fixture
def bowls() -> Bowls:
    """Runs a recipe on bowl clients, from `start`, and gives every version."""

    def run(
        recipe: Recipe, clients: Sequence[Client], start: Sequence[float], *, rounds: int, population: int | None = None
    ) -> list[Version]:
        engine = TorchEngine(Bowl(start), Minimise())
        population = population or len(clients)
        setup = Setup(
            size=engine.layout.size, dtype=engine.layout.dtype, population=population, total_rounds=rounds, seed=7
        )
        held = [client.held() for client in clients]
        driver = InlineDriver(
            recipe,
            setup,
            engine,
            lambda c: held[c],
            FleetState(Fleet(), population, 0, range(len(clients))),
            tells_updates=True,
        )
        versions = []
        for moment in driver.moments(engine.initial()):
            released = moment.turn.released
            if released is not None:
                assert released.release is not None
                state = moment.turn.state
                versions.append(
                    Version(
                        state=state,
                        release=released.release,
                        cohort=[r.client for r in released.release.reports],
                        weights=state.weights[: len(start)].numpy(),
                        # Now, since the next visits replace them.
                        clients={c: driver.state_of(c, record.accepted) for c, record in state.clients.items()},
                        size=len(start),
                    )
                )
        assert len(versions) == rounds
        return versions

    return run


def five_clients(seed: int = 0, dimensions: int = 3) -> list[Client]:
    """Five unlike clients that take 1, 2, 3, 5 and 4 steps per epoch of batch 1."""
    generator = np.random.default_rng(seed)
    return [
        Client(
            curvature=generator.uniform(0.2, 2.0, dimensions),
            optimum=generator.normal(size=dimensions),
            slope=generator.normal(size=dimensions),
            copies=copies,
        )
        for copies in (1, 2, 3, 5, 4)
    ]


@pytest.fixture
def clients() -> list[Client]:
    return five_clients()


@pytest.fixture
def flat_clients() -> list[Client]:
    """The same without curvature: each client's gradient is its slope, wherever it stands."""
    return [Client(np.zeros(3), c.optimum, c.slope, c.copies) for c in five_clients()]


Gradient = Callable[[np.ndarray], np.ndarray]


@pytest.fixture
def descend() -> Callable[..., np.ndarray]:
    """Local SGD in NumPy: where a visit ends, [d]."""

    def run(
        gradient: Gradient,
        start: np.ndarray,
        steps: int,
        lr: float,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        mu: float = 0.0,
    ) -> np.ndarray:
        weights, buffer = start.copy(), np.zeros_like(start)
        for _ in range(steps):
            direction = gradient(weights) + mu * (weights - start)
            buffer = momentum * buffer + direction
            weights = weights - lr * (direction + momentum * buffer if nesterov else buffer)
        return weights

    return run


Visits = Callable[..., tuple[list[Report], list[ClientState], TorchEngine]]


@pytest.fixture
def visits() -> Visits:
    """Runs visits of one client on a real network, each from what `between` makes of the last one's end."""

    def run(
        recipe: Recipe,
        module: nn.Module,
        task: Task,
        data: Held,
        *,
        count: int = 1,
        total_rounds: int | None = None,
        versions: Sequence[int] | None = None,
        between: Callable[[Model], Model] = lambda model: model,
    ) -> tuple[list[Report], list[ClientState], TorchEngine]:
        engine = TorchEngine(module, task)
        setup = Setup(
            size=engine.layout.size, dtype=engine.layout.dtype, population=1, total_rounds=total_rounds, seed=3
        )
        model, state = engine.initial(), ClientState()
        reports, states = [], [state]
        for visit in range(count):
            assignment = Assignment(
                dispatch=visit,
                client=0,
                visit=visit,
                accepted=visit - 1,
                kind="train",
                version=versions[visit] if versions else visit,
                total_rounds=total_rounds,
                weights=model.weights,
                buffers=model.buffers,
                briefs={},
                recipe=recipe.digest,
            )
            before = model.weights.clone()
            state, report = work(recipe, setup, state, assignment, data, engine)
            assert torch.equal(model.weights, before), "an assignment is not changed"
            assert report.update is not None
            # What the client ended with, bit for bit; w0 + (w - w0) would not be.
            model = between(Model(weights=engine.weights.clone(), buffers=report.buffers))
            reports.append(report)
            states.append(state)
        return reports, states, engine

    return run
