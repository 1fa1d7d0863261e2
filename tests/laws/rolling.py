"""A server alone with its clients' answers: whoever the law names answers next, whenever, or never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from polyrhythm.base.messages import Assignment, Lost, Report
from polyrhythm.core.client import work
from polyrhythm.core.client_state import Memory
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerDecision
from polyrhythm.methods.recipe import Recipe

from .world import Federation


@final
@dataclass(kw_only=True)
class Story:
    """What happened, in order.

    Args:
        turns: every answer of the server.
        assignments, reports: by dispatch number; a lost assignment has no report.
        lost: dispatch numbers of what was never answered.
    """

    turns: list[ServerDecision] = field(default_factory=list)
    assignments: dict[int, Assignment] = field(default_factory=dict)
    reports: dict[int, Report] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)

    @property
    def trained(self) -> list[int]:
        """The clients invited to train, in order of dispatch."""
        return [a.client for _, a in sorted(self.assignments.items()) if a.kind == "train"]


def roll(
    recipe: Recipe,
    federation: Federation,
    *,
    versions: int,
    next_one: Sequence[int] = (0,),
    loses: Sequence[bool] = (False,),
) -> Story:
    """A run in which answers come in any order.

    Args:
        recipe: what to run.
        federation: on whom.
        versions: for how long.
        next_one: which of the visits under way ends next, modulo their number; from the start again when used up.
        loses: whether the answer is lost; likewise.
    """
    engine, shards = federation.engine(), federation.shards()
    setup, roster = federation.setup(versions), federation.roster()
    initial = engine.initial()
    server = Server(recipe=recipe, setup=setup, layout=engine.layout)
    turn = server.begin(initial.weights, initial.buffers, roster)
    story, under_way, memories = Story(turns=[turn]), list(turn.assignments), dict[int, Memory]()
    moment = 0
    while under_way and turn.state.version < versions:
        assert moment < 8 * versions * len(federation.sizes)  # a mutant may never come to its total_rounds
        assignment = under_way.pop(next_one[moment % len(next_one)] % len(under_way))
        story.assignments[assignment.dispatch] = assignment
        memory = memories.get(assignment.client, Memory())
        start = memory.at(assignment.accepted)
        state, report = work(recipe, setup, start, assignment, shards[assignment.client], engine)
        if assignment.kind == "train":
            memories[assignment.client] = memory.then(start, state, assignment.visit)
        if loses[moment % len(loses)]:
            story.lost.append(assignment.dispatch)
            heard: Report | Lost = Lost(dispatch=assignment.dispatch, reason="the line is dead")
        else:
            story.reports[assignment.dispatch] = heard = report
        turn = server.receive(turn.state, heard, roster)
        story.turns.append(turn)
        under_way += turn.assignments
        moment += 1
    story.assignments |= {a.dispatch: a for a in under_way}
    return story
