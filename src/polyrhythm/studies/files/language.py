"""The language of study files: what their tables may say, beside those with keys of the experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, final

from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import BaseModel, ConfigDict, Field, field_validator

from polyrhythm.config.json_schema import Schema, schema, without_null
from polyrhythm.studies.claims import BUDGETS, COSTS, MEASURES, Claim, Measure
from polyrhythm.studies.definition import BATCH, PAPERS, Judge, Kind, Spread

Text = Annotated[str, MinLen(1)]
Positive = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Seeds = tuple[Whole, ...] | Whole | Text
Number = float | int


class _Table(BaseModel):
    """Table of a study file: each key with what it takes, in words."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _lists(cls, value: Any) -> Any:
        return _fixed(value)


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, value)) if isinstance(value, list) else value


@final
class SearchSettings(_Table):
    """Tables [sweep] and [tuning], which are two names of one."""

    search: Kind = Field("grid", description="grid, random, list or tpe")
    trials: Positive | None = Field(None, description="of random and tpe, for each row: a whole number, 1 or more")
    seed: Whole = Field(0, description="of all draws: a whole number, 0 or more")
    seeds: Seeds | None = Field(None, description="of the trials: whole numbers, such as 0-2 or [0, 1]")
    fresh: Seeds | None = Field(None, description="of what is compared: whole numbers, such as 10-14 or [10, 11]")
    by: Judge | None = Field(None, description="what judges a trial: final, best or last20")
    prune: Positive | None = Field(None, description="versions: a whole number, 1 or more")
    batch: Positive = Field(BATCH, description="a whole number, 1 or more")
    column: str = Field("", description="the column in which settings are chosen for all")
    space: dict[str, Any] = Field(
        {}, description="keys of an experiment, each with a list of values or a range such as {low = 0.01, high = 1.0}"
    )
    settings: tuple[dict[str, Any], ...] = Field((), description="of a list: tables, each with keys of an experiment")
    rows: dict[Text, dict[str, Any]] = Field({}, description="tables by row, each with its own space or settings")
    methods: dict[Text, dict[str, Any]] = Field({}, description="rows: tables that have keys of the experiment, too")


@final
class ReproducesSettings(_Table):
    """Table [reproduces]: words for the page, and what is read from runs."""

    paper: str = Field("", description=f"one of {', '.join(PAPERS)}")
    items: tuple[Text, ...] = Field((), description='tables and figures, such as ["Table 2"]')
    title: str = Field("", description="a few words")
    source: str = Field("", description="where in the paper")
    says: str = Field("", description="what the paper says, or the question")
    measure: Measure = Field("final", description=f"one of {', '.join(MEASURES)}")
    spread: Spread = Field(
        "none", description='what the paper\'s ± is: "seeds", "rounds of one run", "not said" or "none"'
    )
    columns: str = Field("", description="what columns differ in, in words")
    figures: tuple[Text, ...] = Field((), description='names of figures, such as ["accuracy", "cohort"]')
    notes: tuple[Text, ...] = Field((), description="a list of sentences")
    program: str = Field("", description="the name of a program")
    unknown: str = Field("", description="why there is nothing to do")


@final
class ClaimSettings(_Table):
    """Table [[claims]]: something that is looked at by comparing numbers."""

    says: Text = Field(description="the claim, in words")
    of: str = Field("", description="a row")
    against: str = Field("", description="another row")
    pairs: tuple[tuple[Text, Text], ...] = Field((), description='pairs of rows, such as [["FedCL", "FedAvg"]]')
    measure: str = Field("", description=f"one of {', '.join([*MEASURES, *COSTS])}")
    more_than: Number = Field(0.0, description="points of percent: a number")
    ratio_below: Number | None = Field(None, description="a number")
    ratio_above: Number | None = Field(None, description="a number")
    between: tuple[Number, Number] | None = Field(None, description="two numbers: [low, high]")
    rising: str = Field("", description="a row")
    falling: str = Field("", description="a row")
    grows_over: tuple[Text, ...] = Field((), description="names of columns, in the order in which the difference grows")
    columns: tuple[Text, ...] = Field((), description="names of columns")
    at: str = Field("", description=f"one of {', '.join(BUDGETS)}")
    goal_of: str = Field("", description="a row")

    def each(self) -> Iterator[Claim]:
        """The claim, or that of each of its pairs of rows, which stand in its words as {of} and {against}.

        Raises:
            UserError: it compares nothing, or something that cannot be compared so.
        """
        own: dict[str, Any] = self.model_dump(exclude={"pairs", "of", "against"})
        own |= {"rising": bool(self.rising), "falling": bool(self.falling)}
        if not self.pairs:
            yield Claim(**own, of=self.of or self.rising or self.falling, against=self.against)
        for of, against in self.pairs:
            says = self.says.replace("{of}", of).replace("{against}", against)
            goal = self.goal_of.replace("{against}", against)
            yield Claim(**own | {"says": says, "goal_of": goal}, of=of, against=against)


@final
class ExpertSettings(_Table):
    """Table [expert_training]: settings of `train_expert`."""

    epochs: Positive = Field(10, description="passes: a whole number, 1 or more")
    batch: Positive = Field(64, description="a whole number, 1 or more")
    lr: Annotated[float, Gt(0)] = Field(0.1, description="a number above 0, such as 0.1")
    smoothing: Annotated[float, Ge(0), Lt(1)] = Field(0.0, description="of labels: a number from 0 to below 1")
    last_layer_rate: Annotated[float, Gt(0)] = Field(1.0, description="a factor above 0, such as 1.0")
    seed: Whole = Field(0, description="a whole number, 0 or more")


@final
class Tables(_Table):
    """All tables but the search, and those with keys of the experiment."""

    reproduces: ReproducesSettings = Field(
        ReproducesSettings.model_validate({}), description="a table that says what is reproduced"
    )
    claims: tuple[ClaimSettings, ...] = Field((), description="tables [[claims]]")
    expert_training: ExpertSettings | None = Field(None, description="a table of settings of `polyrhythm expert`")


def takes(model: type[_Table], prefix: str = "") -> dict[str, str]:
    """What each key of a table takes, in words."""
    return {f"{prefix}{key}": str(field.description) for key, field in model.model_fields.items()}


OF_TABLES: Mapping[str, str] = {
    **takes(Tables),
    **takes(ReproducesSettings, "reproduces."),
    **takes(ClaimSettings, "claims."),
    **takes(ExpertSettings, "expert_training."),
}


def file_schema() -> Schema:
    """A JSON Schema of experiments and studies. What lies in rows, spaces and scales is looked at by `check`."""
    search, keys = _plain(SearchSettings), {"type": "object", "description": "tables, each with keys of the experiment"}
    words = {key: {"description": words} for key, words in takes(Tables).items()}
    return schema(
        sweep=search,
        tuning={**search, "additionalProperties": True},
        reproduces=_plain(ReproducesSettings) | words["reproduces"],
        expert_training=_plain(ExpertSettings) | words["expert_training"],
        claims={"type": "array", "items": _plain(ClaimSettings)} | words["claims"],
        **dict.fromkeys(("rows", "columns", "scales"), keys),
        let={"type": "object", "additionalProperties": {"type": "string"}},
        paper={"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    )


def _plain(model: type[_Table]) -> Schema:
    found: Schema = without_null(model.model_json_schema())
    for entry in found["properties"].values():
        entry.pop("title", None)
    return {key: value for key, value in found.items() if key != "title"}
