"""What the tables of a reproduction file may say, beside those with keys of the experiment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, final

from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import BaseModel, ConfigDict, field_validator

from polyrhythm.studies.tables.definition import BUDGETS, COSTS, MEASURES, PAPERS, Spread

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
Text = Annotated[str, MinLen(1)]


@final
class ReproducesSettings(BaseModel):
    """What the table [reproduces] may say."""

    model_config = _STRICT
    paper: Text
    items: Annotated[tuple[Text, ...], MinLen(1)]
    title: Text
    source: str = ""
    says: str = ""
    measure: Literal["final", "best", "last10", "last20"] = "final"
    spread: Spread = "none"
    columns: str = ""
    figures: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()
    program: str = ""
    unknown: str = ""

    @field_validator("items", "figures", "notes", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


@final
class ClaimSettings(BaseModel):
    """What a table [[claims]] may say."""

    model_config = _STRICT
    says: Text
    of: str = ""
    against: str = ""
    pairs: tuple[tuple[Text, Text], ...] = ()
    measure: str = ""
    more_than: float | int = 0.0
    ratio_below: float | int | None = None
    ratio_above: float | int | None = None
    between: tuple[float | int, float | int] | None = None
    rising: str = ""
    falling: str = ""
    grows_over: tuple[Text, ...] = ()
    columns: tuple[Text, ...] = ()
    at: str = ""
    goal_of: str = ""

    @field_validator("columns", "between", "grows_over", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("pairs", mode="before")
    @classmethod
    def _several_pairs(cls, value: Any) -> Any:
        return tuple(map(tuple, value)) if isinstance(value, list) and all(map(_is_list, value)) else value

    @property
    def can_grow(self) -> bool:
        """Whether it is about a difference of two rows, in several columns, and about nothing else."""
        others = (self.ratio_below, self.ratio_above, self.between, self.rising or None, self.falling or None)
        several = len({*self.grows_over}) == len(self.grows_over) > 1
        return several and bool(self.against) and not self.columns and all(other is None for other in others)

    def each(self) -> Iterator[ClaimSettings]:
        """The claim for each of its pairs of rows, which stand in its words as {of} and {against}."""
        if not self.pairs:
            yield self
        for of, against in self.pairs:
            says = self.says.replace("{of}", of).replace("{against}", against)
            goal = self.goal_of.replace("{against}", against)
            yield self.model_copy(update={"says": says, "of": of, "against": against, "goal_of": goal, "pairs": ()})


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


@final
class ExpertSettings(BaseModel):
    """What the table [expert_training] may say: settings of `train_expert`."""

    model_config = _STRICT
    epochs: Annotated[int, Ge(1)] = 10
    batch: Annotated[int, Ge(1)] = 64
    lr: Annotated[float, Gt(0)] = 0.1
    smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    last_layer_rate: Annotated[float, Gt(0)] = 1.0
    seed: Annotated[int, Ge(0)] = 0


@final
class Tables(BaseModel):
    """All of them."""

    model_config = _STRICT
    reproduces: ReproducesSettings
    claims: tuple[ClaimSettings, ...] = ()
    expert_training: ExpertSettings | None = None

    @field_validator("claims", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


OF_EXPERT = dict.fromkeys(ExpertSettings.model_fields, "as for `polyrhythm expert`")
OF_TABLES = {
    "reproduces": "a table that says what is reproduced",
    "reproduces.paper": "one of " + ", ".join(PAPERS),
    "reproduces.items": 'tables and figures, such as ["Table 2"]',
    "reproduces.title": "a few words",
    "reproduces.source": "where in the paper",
    "reproduces.says": "what the paper says",
    "reproduces.measure": "one of " + ", ".join(MEASURES),
    "reproduces.spread": 'what the paper\'s ± is: "seeds", "rounds of one run", "not said" or "none"',
    "reproduces.columns": "what columns differ in, in words",
    "reproduces.figures": 'names of figures, such as ["accuracy", "cohort"]',
    "reproduces.notes": "a list of sentences",
    "reproduces.program": "the name of a program",
    "reproduces.unknown": "why there is nothing to do",
    "claims": "tables [[claims]]",
    "expert_training": "a table of settings of `polyrhythm expert`",
    "claims.says": "the claim, in words",
    "claims.of": "a row",
    "claims.against": "another row",
    "claims.pairs": 'pairs of rows, such as [["FedCL", "FedAvg"]]',
    "claims.measure": "one of " + ", ".join([*MEASURES, *COSTS]),
    "claims.more_than": "points of percent: a number",
    "claims.ratio_below": "a number",
    "claims.ratio_above": "a number",
    "claims.between": "two numbers: [low, high]",
    "claims.rising": "a row",
    "claims.falling": "a row",
    "claims.grows_over": "names of columns, in the order in which the difference grows",
    "claims.columns": "names of columns",
    "claims.at": "one of " + ", ".join(BUDGETS),
    "claims.goal_of": "a row",
    **{f"expert_training.{key}": of for key, of in OF_EXPERT.items()},
}
