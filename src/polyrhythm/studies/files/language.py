"""The language of study files: what their tables may say, beside those with keys of the experiment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, final

from annotated_types import Ge, Gt, Lt
from pydantic import BaseModel, ConfigDict, Field, Strict, create_model, field_validator

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count, Whole, annotations_of
from polyrhythm.base.settings import takes as words_of
from polyrhythm.config.json_schema import Schema, schema, without_null
from polyrhythm.studies.claims import Claim, Text
from polyrhythm.studies.definition import Judge, Search, Study

Seeds = tuple[Whole, ...] | Whole | Text
Rows = dict[Text, dict[str, Any]]
Pairs = tuple[tuple[Text, Text], ...]


class _Table(BaseModel):
    """Table of a study file: each key with what it takes, in words."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _lists(cls, value: Any) -> Any:
        return _fixed(value)


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, value)) if isinstance(value, list) else value


Own = tuple[Any, Any]
"""Type and field of a key that a file writes in another way than Python."""


def _table(owner: type, about: str, keys: str, renamed: Mapping[str, str] | None = None, **own: Own) -> type[_Table]:
    """A table of settings that Python has too: types, defaults and what each takes are those of their annotations.

    Args:
        owner: whose settings they are.
        about: the table.
        keys: in order.
        renamed: keys that are called otherwise than their settings.
        own: keys that a file writes in another way than Python.
    """
    hints, settings = annotations_of(owner), {f.name: f for f in dataclasses.fields(owner)}

    def key(name: str) -> Own:
        made = settings[name]
        empty = made.default is dataclasses.MISSING
        default = made.default_factory() if empty and callable(made.default_factory) else made.default
        return hints[name], Field(default, description=words_of(hints[name]))

    found: dict[str, Any] = {
        name: own[name] if name in own else key((renamed or {}).get(name, name)) for name in keys.split()
    }
    made: type[_Table] = create_model(owner.__name__, __base__=_Table, __doc__=about, **found)
    return made


SEARCH = _table(
    Search,
    "Tables [sweep] and [tuning], which are two names of one.",
    "search trials seed seeds fresh by prune batch column space settings rows methods columns",
    {"search": "kind"},
    seeds=(Seeds | None, Field(None, description="of the trials: whole numbers, such as 0-2 or [0, 1]")),
    fresh=(Seeds | None, Field(None, description="of what is compared: whole numbers, such as 10-14 or [10, 11]")),
    by=(Judge | None, Field(None, description="what judges a trial: final, best, last20 or clients")),
    rows=(Rows, Field({}, description="tables by row, each with its own space or settings")),
    methods=(Rows, Field({}, description="rows: tables that have keys of the experiment, too")),
    columns=(Rows, Field({}, description="tables by column, each with keys that hold there, a space and rows")),
)
REPRODUCES = _table(
    Study,
    "Table [reproduces]: words for the page, and what is read from runs.",
    "paper items shown_by title source says measure spread columns figures notes program unknown",
    {"columns": "columns_are"},
    shown_by=(
        dict[Text, Annotated[tuple[Text, ...], Strict(strict=False)]],
        Field({}, description="items, each with the rows or columns one of which must be run for it"),
    ),
)
CLAIM = _table(
    Claim,
    "Table [[claims]]: something that is looked at by comparing numbers.",
    "says of against pairs measure more_than ratio_below ratio_above between rising falling grows_over columns at "
    "goal_of ours",
    says=(Text, Field(description="the claim, in words")),
    of=(str, Field("", description="a row")),
    pairs=(Pairs, Field((), description='pairs of rows, such as [["FedCL", "FedAvg"]]')),
    rising=(str, Field("", description="a row")),
    falling=(str, Field("", description="a row")),
)


def claims_of(table: Mapping[str, Any]) -> Iterator[Claim]:
    """The claim of a table, or that of each of its pairs of rows, which stand in its words as {of} and {against}.

    Raises:
        UserError: it compares nothing, or something that cannot be compared so.
    """
    own = {**table, "rising": bool(table["rising"]), "falling": bool(table["falling"])}
    pairs = own.pop("pairs")
    about = [key for key in ("of", "rising", "falling", "pairs") if table[key]]
    if len(about) > 1 or (pairs and table["against"]):
        both = [*about, "against"][:2]
        raise UserError(
            f"{both[0]} and {both[1]}",
            expected="of, pairs, rising or falling: one of them, each with the rows that it is about",
            why="one of them would be looked at, and the other would not",
            fix="make two claims of it",
        )
    if not pairs:
        yield Claim(**own | {"of": table["of"] or table["rising"] or table["falling"]})
    for of, against in pairs:
        says = table["says"].replace("{of}", of).replace("{against}", against)
        goal = table["goal_of"].replace("{against}", against)
        yield Claim(**own | {"says": says, "goal_of": goal, "of": of, "against": against})


@final
class ExpertSettings(_Table):
    """Table [expert_training]: settings of `train_expert`."""

    epochs: Count = Field(10, description="passes: a whole number, 1 or more")
    batch: Count = Field(64, description="a whole number, 1 or more")
    lr: Annotated[float, Gt(0)] = Field(0.1, description="a number above 0, such as 0.1")
    smoothing: Annotated[float, Ge(0), Lt(1)] = Field(0.0, description="of labels: a number from 0 to below 1")
    last_layer_rate: Annotated[float, Gt(0)] = Field(1.0, description="a factor above 0, such as 1.0")
    seed: Whole = Field(0, description="a whole number, 0 or more")


TABLES: type[_Table] = create_model(
    "Tables",
    __base__=_Table,
    reproduces=(REPRODUCES, Field(REPRODUCES(), description="a table that says what is reproduced")),
    claims=(tuple[CLAIM, ...], Field((), description="tables [[claims]]")),  # type: ignore[valid-type]  # made above
    expert_training=(ExpertSettings | None, Field(None, description="a table of settings of `polyrhythm expert`")),
)
"""All tables but the search, and those with keys of the experiment."""


def takes(model: type[_Table], prefix: str = "") -> dict[str, str]:
    """What each key of a table takes, in words."""
    return {f"{prefix}{key}": str(field.description) for key, field in model.model_fields.items()}


OF_TABLES: Mapping[str, str] = {
    **takes(TABLES),
    **takes(REPRODUCES, "reproduces."),
    **takes(CLAIM, "claims."),
    **takes(ExpertSettings, "expert_training."),
}


def file_schema() -> Schema:
    """A JSON Schema of experiments and studies. What lies in rows, spaces and scales is looked at by `check`."""
    search, keys = _plain(SEARCH), {"type": "object", "description": "tables, each with keys of the experiment"}
    words = {key: {"description": words} for key, words in takes(TABLES).items()}
    return schema(
        sweep=search,
        tuning={**search, "additionalProperties": True},
        reproduces=_plain(REPRODUCES) | words["reproduces"],
        expert_training=_plain(ExpertSettings) | words["expert_training"],
        claims={"type": "array", "items": _plain(CLAIM)} | words["claims"],
        **dict.fromkeys(("rows", "columns", "scales"), keys),
        let={"type": "object", "additionalProperties": {"type": "string"}},
        paper={"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    )


def _plain(model: type[_Table]) -> Schema:
    found: Schema = without_null(model.model_json_schema())
    for entry in found["properties"].values():
        entry.pop("title", None)
    return {key: value for key, value in found.items() if key != "title"}
