"""Columns of tables as people have them: what stands in each cell, and what it means."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, final

import numpy as np

from drawn.case import Draw

TEXTS = (
    *("a", "b", "NA x", "None", "NaN", "null", "007", "7", "é", "ü", "日本", "a,b", "x;y", 'say "so"', "two words"),
    *("1e3", "1-2", "inf", "TRUE", "-", "?", "a=b", "Ünïcode", "e\u0301", "\u0663", "x|y", "1_000", "0x1F", "<b>", "#"),
)
NAMES = (
    *("age", "Age", "größe", "a b", "x=1", "class", "index", "no", "1", "it's", "q;r", "s,t", 'u"v', "level", "None"),
    *("nan", "count", "mean", "T", "columns"),
)
NUMBERED = ("whole", "signed", "fraction", "exponent", "truth", "small", "apart", "wide", "constant")
TYPED = ("decimal", "moment", "zoned", "date", "duration", "nullable", "float32", "uint8")


@final
@dataclass(frozen=True)
class Column:
    """A column.

    Args:
        name: its name.
        values: as a typed table has them.
        cells: as a text file has them.
        read: what they mean: numbers, or texts.
    """

    name: str
    values: Sequence[Any]
    cells: Sequence[str]
    read: Sequence[Any]

    @property
    def text(self) -> bool:
        return bool(self.read) and isinstance(self.read[0], str)

    def at(self, rows: Sequence[int]) -> Column:
        return Column(self.name, *([part[r] for r in rows] for part in (self.values, self.cells, self.read)))


@final
@dataclass
class Table:
    """A table on its way: what is in it, how it is asked for, and what is known of what must become of it."""

    columns: list[Column]
    target: Column
    client: Column | None
    form: Literal["text", "parquet", "feather", "frame"]
    settings: dict[str, Any] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)
    must: Literal["", "refuse"] = ""
    odd: list[str] = field(default_factory=list)
    say: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def all(self) -> list[Column]:
        return [*self.columns, self.target, *([self.client] if self.client else [])]


def numbers(draw: Draw, kind: str, n: int, name: str, typed: bool) -> Column:
    """A feature of numbers."""
    many: dict[str, Callable[[], Any]] = {
        "whole": lambda: draw.randrange(100),
        "signed": lambda: draw.randrange(-50, 50),
        "fraction": lambda: draw.uniform(-5, 5),
        "exponent": lambda: draw.uniform(-5, 5) * 10 ** draw.randrange(-9, 9),
        "truth": lambda: draw.random() < 0.5,
        "small": lambda: draw.choice([0.0, -0.0, 1e-300, 1e-40, 5e-324, 1.0]),
        "apart": lambda: 1_700_000_000 + draw.randrange(64),
        "wide": lambda: draw.choice([2**53 + 1, -(2**62), 2**63 - 1, 10**17]),
        "constant": lambda: 3,
        "decimal": lambda: Decimal(draw.randrange(-999, 999)) / 4,
        "moment": lambda: datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=draw.randrange(10**6)),
        "zoned": lambda: datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(draw.randrange(99)),
        "date": lambda: datetime.date(1960, 1, 1) + datetime.timedelta(draw.randrange(30_000)),
        "duration": lambda: datetime.timedelta(milliseconds=draw.randrange(10**7)),
        "nullable": lambda: draw.randrange(9),
        "float32": lambda: float(np.float32(draw.random())),
        "uint8": lambda: draw.randrange(256),
    }
    values = [many[kind]() for _ in range(n)]
    read = [seconds(value) for value in values]
    how = draw.choice([str, str, lambda v: f"+{v}" if type(v) is int and v > 0 else str(v), lambda v: f" {v} "])
    if kind == "whole" and draw.random() < 0.2:
        how = "{:03d}".format
    if kind in ("fraction", "exponent") and draw.random() < 0.5:
        how = draw.choice(["{:.17e}".format, "{:.17E}".format, repr])
    return Column(name, values, [how(v) for v in values], read)


def seconds(value: Any) -> float:
    """A value as a number; of times, seconds since 1970."""
    if isinstance(value, datetime.timedelta):
        return value / datetime.timedelta(seconds=1)
    if isinstance(value, datetime.date):
        moment = (
            value if isinstance(value, datetime.datetime) else datetime.datetime(value.year, value.month, value.day)
        )
        return (moment.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) / datetime.timedelta(seconds=1)
    return float(value)


def texts(draw: Draw, n: int, name: str, pool: Sequence[str] = TEXTS) -> Column:
    """A column of texts, of which at least one is no number, so that none of them is one."""
    chosen = draw.sample(pool, draw.randrange(2, min(6, len(pool)) + 1))
    if all(_number_like(text) for text in chosen):
        chosen[0] = "word"
    values = [chosen[i % len(chosen)] for i in range(n)]
    draw.shuffle(values)
    return Column(name, values, values, values)


def _number_like(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text in ("TRUE", "-", "?", "None", "null")
    return True


def target_of(draw: Draw, n: int, form: str) -> Column:
    """What is to be predicted, and its labels: texts for classes, numbers for amounts."""
    kind = draw.choice(
        ["text", "text", "whole", "truth", "padded", "amount", "whole amounts", "one", "long", "odd truth"]
    )
    name = draw.choice(["y", "label", "größe y", "target"])
    if kind == "text":
        column = texts(draw, n, name, [*TEXTS, "NA"])
        return replace(column, read=[text.strip() for text in column.values])
    if kind == "odd truth":
        pair = draw.choice([("TRUE", "FALSE"), ("true", "false"), ("True", "False"), ("yes", "no")])
        values: list[Any] = [pair[i % 2] for i in range(n)]
        return Column(name, values, values, values)
    if kind == "padded":
        values = [draw.choice(["01", "02", "10"]) for _ in range(n - 1)] + ["01"]
        return Column(name, values, values, values)
    if kind == "long":  # more digits than any number holds
        values = [f"1234567890123456789{i % 3}" for i in range(n)]
        return Column(name, values, values, values)
    values = [
        {
            "whole": lambda: draw.choice([-1, 0, 3, 10]),
            "truth": lambda: draw.random() < 0.5,
            "amount": lambda: draw.uniform(0, 9),
            "whole amounts": lambda: float(draw.randrange(4)),
            "one": lambda: 5,
        }[kind]()
        for _ in range(n)
    ]
    if kind == "amount":
        read: list[Any] = [float(np.float32(v)) for v in values]
    else:
        read = [str(int(v)) if not isinstance(v, bool) else str(v) for v in values]
    return Column(name, values, [str(v) for v in values], read)


def client_of(draw: Draw, n: int) -> Column:
    """The clients, as they are written."""
    pool: Sequence[Any] = draw.choice([("007", "7", "NA"), ("north", "süd", "None"), (2, 10, 1), ("1.0", "1", "01")])
    values = [pool[i % len(pool)] for i in range(n)]
    draw.shuffle(values)
    return Column("who", values, [str(v) for v in values], [str(v) for v in values])
