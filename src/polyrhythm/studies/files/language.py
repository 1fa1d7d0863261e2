"""The language of study files: what their tables may say, beside those with keys of the experiment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, final

from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import BaseModel, ConfigDict, Field, field_validator

from polyrhythm.config.json_schema import Schema, schema, without_null
from polyrhythm.studies.definition import BATCH, BUDGETS, COSTS, MEASURES, PAPERS, Judge, Kind, Measure, Spread

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
Text = Annotated[str, MinLen(1)]
Positive = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]


@final
class SearchSettings(BaseModel):
    """What the tables [sweep] and [tuning] may say, which are two names of one."""

    model_config = _STRICT
    search: Kind = "grid"
    trials: Positive | None = None
    seed: Whole = 0
    seeds: tuple[Whole, ...] | str | None = None
    fresh: tuple[Whole, ...] | str | None = None
    by: Judge | None = None
    prune: Positive | None = None
    batch: Positive = BATCH
    column: str = ""
    space: dict[str, Any] = Field(default_factory=dict)
    settings: tuple[dict[str, Any], ...] = ()
    rows: dict[Text, dict[str, Any]] = Field(default_factory=dict)
    methods: dict[Text, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("seeds", "fresh", "settings", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else (value,) if type(value) is int else value


@final
class ReproducesSettings(BaseModel):
    """What the table [reproduces] may say."""

    model_config = _STRICT
    paper: str = ""
    items: tuple[Text, ...] = ()
    title: str = ""
    source: str = ""
    says: str = ""
    measure: Measure = "final"
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
    """All of them but the search."""

    model_config = _STRICT
    reproduces: ReproducesSettings = ReproducesSettings()
    claims: tuple[ClaimSettings, ...] = ()
    expert_training: ExpertSettings | None = None

    @field_validator("claims", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


OF_SEARCH = {
    "search": "grid, random, list or tpe",
    "trials": "a whole number, 1 or more",
    "seed": "of all draws: a whole number, 0 or more",
    "seeds": "of the trials: whole numbers, such as 0-2 or [0, 1]",
    "fresh": "of the chosen settings: whole numbers, such as 10-14 or [10, 11]",
    "by": "final, best or last20",
    "prune": "versions: a whole number, 1 or more",
    "batch": "a whole number, 1 or more",
    "column": "the column in which settings are chosen for all",
    "space": "keys of an experiment, each with a list of values or a range such as {low = 0.01, high = 1.0}",
    "settings": "tables [[sweep.settings]], each with keys of an experiment",
    "rows": "tables [tuning.rows.ROW], each with a space or settings of that row",
    "methods": "tables [sweep.methods.NAME]: rows, each with keys of an experiment, and a space or settings",
}
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
_KEYS: Schema = {"type": "object", "description": "tables, each with keys of the experiment"}


def file_schema() -> Schema:
    """A JSON Schema of experiments and studies. What lies in rows, spaces and scales is looked at by `check`."""
    search = _described(SearchSettings.model_json_schema(), OF_SEARCH)
    found = {
        "sweep": search,
        "tuning": {**search, "additionalProperties": True},
        **dict.fromkeys(("rows", "columns", "scales"), _KEYS),
        "let": {"type": "object", "additionalProperties": {"type": "string"}, "description": "texts by name"},
        "paper": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    }
    of_claims = _described(ClaimSettings.model_json_schema(), OF_TABLES, "claims.")
    found["claims"] = {"type": "array", "items": of_claims, "description": OF_TABLES["claims"]}
    found["reproduces"] = _described(ReproducesSettings.model_json_schema(), OF_TABLES, "reproduces.")
    found["expert_training"] = _described(ExpertSettings.model_json_schema(), OF_TABLES, "expert_training.")
    return schema(**found)


def _described(found: Schema, words: dict[str, str], prefix: str = "") -> Schema:
    plain: Schema = without_null(found)
    for key, entry in plain["properties"].items():
        entry.pop("title", None)
        entry["description"] = words[f"{prefix}{key}"]
    return {key: value for key, value in plain.items() if key not in ("title", "$defs")}
