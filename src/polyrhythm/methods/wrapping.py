"""What policies around another policy have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from polyrhythm.base.messages import Fault, Report, State
from polyrhythm.methods.mechanism import Mechanism, Outcome, Release, Setup


@dataclass(frozen=True, kw_only=True)
class Wrapping(Mechanism):
    """Passes every hook on to the policy inside, whose state, brief and extra lie under "inner" in this one's.

    A policy around another writes the hooks in which it does more, and calls `super()` there for the inner part.

    Args:
        inner: the policy inside.
    """

    inner: Mechanism

    def over(self, earlier: Mechanism) -> Mechanism:
        return replace(self, inner=earlier)

    def parts(self) -> tuple[Mechanism, ...]:
        return (self, *self.inner.parts())

    @property
    def sends_alike(self) -> bool:
        return type(self).finish is Wrapping.finish

    def server_start(self, setup: Setup) -> State:
        return {"inner": self.inner.server_start(setup)}

    def brief(self, setup: Setup, state: State, client: int) -> State:
        return _under(self.inner.brief(setup, state["inner"], client))

    def fill(self, setup: Setup, state: State, report: Report) -> Report:
        return self.inner.fill(setup, state["inner"], report)

    def refuses(self, setup: Setup, state: State, report: Report) -> Fault | None:
        return self.inner.refuses(setup, state["inner"], report)

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        return {**state, "inner": self.inner.accept(setup, state["inner"], report)}

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        inner, mean = self.inner.before_step(setup, state["inner"], release, mean)
        return {**state, "inner": inner}, mean

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        return {**state, "inner": self.inner.after_step(setup, state["inner"], release)}

    def measures(self, state: State) -> Mapping[str, float]:
        return self.inner.measures(state["inner"])

    def client_start(self, setup: Setup) -> State:
        return _under(self.inner.client_start(setup))

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        inner, extra = self.inner.finish(setup, state.get("inner", {}), brief.get("inner", {}), outcome)
        return {**state, **_under(inner)}, _under(extra)


def _under(inner: State) -> State:
    """Empty stays empty, so that what holds nothing costs nothing."""
    return {"inner": inner} if inner else {}
