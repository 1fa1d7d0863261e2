"""The privacy of clients in an experiment: what can be known before the first round, and what is said of it after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.vectors import Layout
from polyrhythm.core.server_state import ServerState
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.privacy.account import Account
from polyrhythm.methods.privacy.statement import Statement
from polyrhythm.models.tasks import Classification

SIMULATED = "simulated: whoever knows the seed can take the noise away again"
CENTRAL = (
    "by a server that must be trusted: nodes send it their updates bare, and it clips them and adds noise, which like "
    "the coins it draws from a key that it makes when it starts and keeps nowhere"
)
SUMMED = (
    "by a server that must be trusted with sums: clients clip their updates and hide them under masks, and it reads "
    "the sum of a version before it adds noise"
)


@final
@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Privacy of a run.

    Args:
        experiment: what is run.
        account: of its clients.
        budget: what the account may count to before the run ends; None for any number.
        simulated: whether no node is real.
    """

    experiment: Experiment
    account: Account
    budget: int | None
    simulated: bool = True

    def why_end(self, state: ServerState) -> str:
        """Why a run ends before its next version: that might cost more than there is; empty if it goes on."""
        if self.budget is None or self.account.counted(state.parts) < self.budget:
            return ""
        limit = self.experiment.until.epsilon
        return f"the privacy budget is spent: another version might take epsilon beyond {limit:g}"

    def fields(self, state: ServerState | None) -> dict[str, Any]:
        """What a summary says: `epsilon`, None where there is no guarantee, `delta`, `privacy_law`, and `privacy`, the
        whole statement.
        """
        told = self.statement(state)
        law = {"epsilon": told.epsilon, "delta": told.delta, "privacy_law": self.account.sampling.law}
        return {**law, "privacy": told.plain()}

    def statement(self, state: ServerState | None) -> Statement:
        """The privacy statement of the versions so far; None before there is one."""
        parts = {} if state is None else state.parts
        return self.account.statement(parts, self.guarantee, tuple(self._outside()))

    @property
    def guarantee(self) -> str:
        """Of which kind it is, and who must be trusted."""
        server = SUMMED if self.experiment.recipe.sums_only else CENTRAL
        if self.simulated:
            return f"{SIMULATED}, and of what would be {server}" if self.experiment.recipe.sums_only else SIMULATED
        return server

    def _outside(self) -> Iterator[str]:
        """What the guarantee does not cover."""
        experiment, federation = self.experiment, self.experiment.federation
        yield "the record of the run, with losses, lengths, counts and durations of single clients, and who took part"
        if not self.simulated:
            yield "the server and whoever else reads its disk or memory"
        yield "when clients answer, which shows how much data they hold"
        if federation.local_tests is not None:
            yield "results on clients' own tests"
        if federation.validation is not None:
            ends = " and when the run ends" if experiment.until.judges else ""
            yield f"which version is best{ends}, as told by validation data held out of clients' samples"
        if experiment.evaluation.train_samples or experiment.evaluation.groups:
            yield "results on clients' training samples"
        if isinstance(experiment.task, Classification) and experiment.task.class_weights == "balanced":
            yield "class weights, which are counted over all clients"
        if experiment.expert is not None:
            yield "the expert, if it was trained on clients' data"
        if experiment.initial is not None:
            yield "the initial weights, if they were trained on clients' data"
        yield "settings that were chosen by other runs on the same data, whose costs add up"
        yield "attacks on floating-point numbers: rounded normal draws are no release mechanism"


def privacy_of(experiment: Experiment, setup: Setup, layout: Layout) -> Privacy | None:
    """The privacy of a run to be; None of a recipe that hides nobody.

    Raises:
        UserError: something leaves past the noise, the noise that is wanted cannot be found, the budget is spent by the
            first version, or dp-accounting is not installed.
    """
    if not experiment.recipe.releasing.private:
        return None
    _check_buffers(layout)
    if (account := experiment.recipe.account(setup)) is None:
        return None
    return Privacy(
        experiment=experiment, account=account, budget=_budget(experiment, account), simulated=setup.secret is None
    )


def _check_buffers(layout: Layout) -> None:
    if not layout.buffers:
        return
    raise UserError(
        f"dp with a model that has buffers, such as {layout.buffers[0].name}",
        expected="a model whose weights are all that clients send",
        why="running statistics are means of private data, which would leave without noise",
        fix='norm="group" in place of BatchNorm, or register a buffer that never changes with persistent=False',
    )


def _budget(experiment: Experiment, account: Account) -> int | None:
    limit = experiment.until.epsilon
    if limit is None:
        return None
    if (most := account.within(limit)) == 0:
        raise UserError(
            f"until epsilon = {limit:g}, where the first version takes {account.epsilon(1):.4g}",
            expected="a budget for one version at least",
            why="the run would end before it begins",
            fix="more noise, clients drawn less often, or a larger budget",
        )
    return most


def about(privacy: Privacy | None) -> Iterator[str]:
    """What a reader should know before the first round."""
    if privacy is None:
        return
    account, rounds = privacy.account, privacy.experiment.rounds
    if not account.noise:
        yield "dp without noise: updates are clipped, and nothing is guaranteed"
        return
    clients = account.sampling.population
    if account.wanted is not None:
        yield f"dp: epsilon = {account.wanted:g} takes noise of {account.noise:.4g} clips, for these rounds and clients"
    if account.delta >= 1 / clients:
        yield (
            f"dp: delta = {account.delta:g} is no less than 1 / {clients:,} clients: it allows that one client's data "
            "are published whole"
        )
    if account.sampling.law == "bounded":
        most, limits = account.sampling.most, ""
        if most is not None:
            cost = account.epsilon(most)
            limits = f"; {most:,} visits of a client cost epsilon = {cost:.4g} at delta = {account.delta:g}"
        yield f"dp: who takes part is no secret here, so being drawn by chance hides nobody (no amplification){limits}"
    elif rounds is not None:
        cost, kind = account.epsilon(rounds), "; simulated" if privacy.simulated else ""
        yield f"dp: all {rounds:,} rounds cost epsilon = {cost:.4g} at delta = {account.delta:g}{kind}"
    if not privacy.simulated:
        yield "dp: the server must be trusted; an update that a node does not send is one of zero, and divides as ever"
